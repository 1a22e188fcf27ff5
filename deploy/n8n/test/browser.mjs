// The editor, login and /rest through hookonce, in a real Chromium.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';
import { deliver, dirs, owner, until } from './rig.mjs';

const { chromium } = createRequire(path.join(process.env.PLAYWRIGHT_DIR, 'x.js'))('playwright-core');

export async function editor({ check, front, n8n, workflow, newEvent, rows }) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM_BIN,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-background-networking', '--disable-component-update',
      '--disable-sync', '--no-first-run'],
  });
  const page = await browser.newPage({ viewport: { width: 1400, height: 800 } });
  page.setDefaultTimeout(120_000); // the editor is large, and the machine may be busy
  const shot = (name) => page.screenshot({ path: path.join(dirs.state, `${name}.png`) });
  const sockets = [];
  const foreign = [];
  page.on('websocket', (socket) => {
    const s = { url: socket.url(), received: [], closed: false };
    sockets.push(s);
    socket.on('framereceived', ({ payload }) => s.received.push(String(payload)));
    socket.on('close', () => { s.closed = true; });
  });
  page.on('request', (r) => { if (r.url().startsWith(n8n.url)) foreign.push(r.url()); });
  try {
    await check('browser: login through hookonce', async () => {
      await page.goto(`${front.url}/signin`);
      await page.locator('input[type="email"]').fill(owner.email);
      await page.locator('input[type="password"]').fill(owner.password);
      await page.locator('form button, [data-test-id="form-submit-button"]').first().click();
      await page.waitForURL((url) => !url.pathname.startsWith('/signin'));
      await page.getByText(workflow.name, { exact: true }).first().waitFor();
      await shot('1-after-login');
    });
    await check('browser: a workflow opens in the editor, its push channel is a websocket through hookonce', async () => {
      await page.goto(`${front.url}/workflow/${workflow.id}`);
      for (const n of workflow.nodes) await page.locator(`[data-test-id="canvas-node"][data-node-name="${n.name}"]`).waitFor();
      await until('the push websocket', () => sockets.find((s) => s.url.includes('/rest/push') && !s.closed));
      assert.ok(sockets.every((s) => new URL(s.url).host === new URL(front.url).host), JSON.stringify(sockets.map((s) => s.url)));
      await shot('2-editor');
    });
    await check('browser: "Execute workflow" waits for a test event, /webhook-test/ brings it, the editor shows the run live', async () => {
      await page.locator('[data-test-id="execute-workflow-button"]').first().click();
      const e = newEvent();
      // Until the editor listens n8n answers 404; an unsigned request shows that this path is no webhook of hookonce's.
      const answer = await until('the test webhook', async () => {
        const a = await deliver(`${front.url}/webhook-test/stripe`, e, { 'stripe-signature': 'none' });
        return a.status === 200 && a;
      });
      assert.equal(answer.outcome, '');
      assert.equal(await rows(e.id), 1);
      await until('the run in the push channel', () => sockets.some((s) => s.received.some((f) => f.includes('executionFinished'))));
      await page.locator('[data-test-id="canvas-node-status-success"]').first().waitFor();
      await shot('3-after-a-test-run');
    });
    await check('browser: executions list', async () => {
      await page.goto(`${front.url}/workflow/${workflow.id}/executions`);
      await page.locator('[data-test-id^="execution-details-"]').first().waitFor();
      await shot('4-executions');
      assert.deepEqual(foreign, [], 'the browser went round hookonce');
    });
  } finally {
    await browser.close();
  }
}
