// What deploy/n8n promises, checked on a real n8n, a real Postgres and a real hookonce. Started by run.sh.
import assert from 'node:assert/strict';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { editor } from './browser.mjs';
import {
  N8N, Hookonce, count, databaseURL, deliver, dirs, freePorts, hookonce, lock, owner, secret, sql, sqlFile, stopAll, until,
} from './rig.mjs';
import { behind, template, variants, writeForImport } from './workflows.mjs';

let passed = 0;
let failed = 0;
const begun = Date.now();

/** Runs one check and prints its line; what `body` returns is added to it. */
async function check(name, body) {
  const at = () => `${String(Math.round((Date.now() - begun) / 1000)).padStart(4)} s`;
  try {
    const note = await body();
    passed++;
    console.log(`ok   ${at()}  ${name}${note ? ` (${note})` : ''}`);
  } catch (error) {
    failed++;
    console.log(`FAIL ${at()}  ${name}\n     ${String(error?.stack ?? error).replaceAll('\n', '\n     ')}`);
  }
}

let events = 0;
const newEvent = (more = {}) => ({ id: `evt_check_${++events}`, object: 'event', type: 'charge.succeeded', ...more });
const rows = (id, workflow) =>
  count('app', `business_log WHERE event_id = '${id}'${workflow ? ` AND workflow = '${workflow.name}'` : ''}`);

/** Delivers to a webhook and says how it ended, as '200 forwarded'. */
const sent = new Map();
async function to(url, event, headers) {
  const origin = new URL(url).origin;
  sent.set(origin, (sent.get(origin) ?? 0) + 1);
  return deliver(url, event, headers);
}
const ending = async (url, event) => {
  const a = await to(url, event);
  return `${a.status} ${a.outcome}`;
};

// ---- what everything needs

const [n8nPort, brokerPort, publicPort] = await freePorts(3);
const n8n = new N8N(n8nPort, brokerPort, publicPort);
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => { stopAll().finally(() => process.exit(1)); });

console.log('preparing: databases, workflows, n8n');
for (const db of ['n8n', 'app', 'old']) await sql('postgres', `CREATE DATABASE ${db}`);
const schema = path.join(dirs.here, '..', 'schema.sql');
await hookonce(['migrate'], { DATABASE_URL: databaseURL('app') });
await sqlFile('app', schema);
await sqlFile('old', schema);
const [credentials, workflows] = writeForImport(process.env.POSTGRES_PORT);
await n8n.cli('import:credentials', `--input=${credentials}`);
await n8n.cli('import:workflow', '--separate', `--input=${workflows}`);

// As in the README: one webhook, and everything else passes through. n8n's public address is this one.
const front = await Hookonce.start(n8n.url, 'app', { WEBHOOK_PATH: '/webhook/stripe' }, publicPort);
// All production webhooks.
const all = await Hookonce.start(n8n.url, 'app', { WEBHOOK_PATH: '/webhook/', UPSTREAM_TIMEOUT: '180s' });
const hook = (w) => `${all.url}/webhook/${w.nodes.find((n) => n.name === 'Webhook').parameters.path}`;

n8n.launch();
await n8n.ready();
n8n.apiURL = front.url;
await check('the owner is set up, and workflows are published, through hookonce', async () => {
  await n8n.rest('POST', '/owner/setup', owner);
  for (const w of [behind, ...Object.values(variants)]) if (w !== variants.templateMoved) await n8n.publish(w.id);
});
await until('the webhooks to answer', async () => (await to(hook(behind), newEvent())).status === 200);

// ---- each event once

await check('A, A with a fresh signature, B: three 200s, 2 executions, 2 rows', async () => {
  const before = await n8n.settledExecutions(behind.id);
  const [a, b] = [newEvent(), newEvent()];
  const send = async (event) => (await hookonce(['send', `${front.url}/webhook/stripe`, '--provider', 'stripe',
    '--secret', secret, '--data', JSON.stringify(event)])).stdout.split('\n')[0];
  const answers = [await send(a)];
  await sleep(1100); // a Stripe signature is made anew each second
  answers.push(await send(a), await send(b));
  assert.deepEqual(answers, ['200 forwarded', '200 duplicate', '200 forwarded']);
  assert.equal(await n8n.settledExecutions(behind.id) - before, 2);
  assert.deepEqual([await rows(a.id), await rows(b.id)], [1, 1]);
  const [[key, prior]] = await sql('app', `SELECT event_key, prior_outcome FROM business_log WHERE event_id = '${a.id}'`);
  assert.deepEqual([key, prior], [`evt:${a.id}`, 'none']);
});

await check('the in-workflow template, for comparison: A, A, B are 3 executions', async () => {
  const before = await n8n.settledExecutions(template.id);
  const [a, b] = [newEvent(), newEvent()];
  const direct = `${n8n.url}/webhook/stripe-template`;
  const answers = [];
  for (const e of [a, a, b]) answers.push((await deliver(direct, e)).body);
  assert.deepEqual(answers.map((x) => JSON.parse(x).status), ['processed', 'duplicate', 'processed']);
  assert.equal(await n8n.settledExecutions(template.id) - before, 3);
  assert.equal(await count('old', 'business_log'), 2);
  assert.equal(await count('old', `processed_events WHERE key = 'evt:${a.id}'`), 1);
});

for (const n of [8, 64]) {
  await check(`${n} simultaneous deliveries of one event: 1 execution, 1 row`, async () => {
    const before = await n8n.settledExecutions(behind.id);
    const e = newEvent();
    const answers = await Promise.all(Array.from({ length: n }, () => ending(hook(behind), e)));
    const tally = Object.groupBy(answers, (a) => a);
    assert.equal(tally['200 forwarded']?.length, 1, JSON.stringify(answers));
    assert.ok(answers.every((a) => ['200 forwarded', '200 duplicate', '503 in_flight'].includes(a)), JSON.stringify(answers));
    assert.equal(await n8n.settledExecutions(behind.id) - before, 1);
    assert.equal(await rows(e.id), 1);
    return Object.entries(tally).map(([k, v]) => `${v.length} × ${k}`).join(', ');
  });
}

await check('two workflows, one event: both run once', async () => {
  const e = newEvent();
  const answers = [];
  for (const w of [behind, variants.second, behind, variants.second]) answers.push(await ending(hook(w), e));
  assert.deepEqual(answers, ['200 forwarded', '200 forwarded', '200 duplicate', '200 duplicate']);
  assert.deepEqual([await rows(e.id, behind), await rows(e.id, variants.second)], [1, 1]);
});

await check('a delivery that is not signed: 401, and n8n sees nothing', async () => {
  const before = await n8n.settledExecutions(behind.id);
  const a = await to(hook(behind), newEvent(), { 'stripe-signature': 't=1,v1=00' });
  assert.deepEqual([a.status, a.outcome, a.body], [401, 'invalid_signature', '']);
  assert.equal(await n8n.settledExecutions(behind.id), before);
});

await check('a workflow that saves no execution data: A, A is 1 row all the same', async () => {
  const e = newEvent();
  assert.deepEqual([await ending(hook(variants.unsaved), e), await ending(hook(variants.unsaved), e)], ['200 forwarded', '200 duplicate']);
  assert.equal(await rows(e.id), 1);
  await until('n8n to drop the execution', async () => await count('n8n',
    `execution_entity WHERE "workflowId" = '${variants.unsaved.id}' AND "deletedAt" IS NULL`) === 0);
});

// ---- failures give the key back

for (const [mode, w] of [['"Respond to Webhook"', variants.throws], ['"When Last Node Finishes"', variants.throwsLastNode]]) {
  await check(`${mode}: a workflow that throws is a 500, and the next delivery runs`, async () => {
    const e = newEvent();
    const answers = [];
    for (const fail of [true, true, false, false]) answers.push(await ending(hook(w), { ...e, fail }));
    assert.deepEqual(answers, ['500 released', '500 released', '200 forwarded', '200 duplicate']);
    assert.equal(await n8n.settledExecutions(w.id), 3);
    assert.equal(await rows(e.id), 1);
  });
}

for (const [how, w] of [
  ['"Immediately" answers before anything has run', variants.immediately],
  ['a Respond node that comes first answers for what follows', variants.respondsFirst],
  ['a node that is told to continue on error is no failure', variants.goesOn],
]) {
  await check(`${how}: 200, the key is kept, the event is lost (as the README warns)`, async () => {
    const e = newEvent();
    const fails = w === variants.goesOn ? { id: e.id, fail: true, object: 'event' } : { ...e, fail: true };
    if (w === variants.goesOn) await sql('app', 'ALTER TABLE business_log RENAME TO business_log_away');
    try {
      assert.equal(await ending(hook(w), fails), '200 forwarded');
      await n8n.settledExecutions(w.id);
    } finally {
      if (w === variants.goesOn) await sql('app', 'ALTER TABLE business_log_away RENAME TO business_log');
    }
    assert.equal(await ending(hook(w), { ...e, fail: false }), '200 duplicate');
    assert.equal(await rows(e.id), 0);
  });
}

await check('a failed business insert: the retry runs', async () => {
  const e = newEvent();
  await sql('app', 'ALTER TABLE business_log RENAME TO business_log_away');
  try {
    assert.equal(await ending(hook(behind), e), '500 released');
  } finally {
    await sql('app', 'ALTER TABLE business_log_away RENAME TO business_log');
  }
  assert.deepEqual([await ending(hook(behind), e), await ending(hook(behind), e)], ['200 forwarded', '200 duplicate']);
  assert.equal(await rows(e.id), 1);
});

await check('the in-workflow template, for comparison: the retry is answered 200 "duplicate", and there is no row', async () => {
  const e = newEvent();
  const direct = `${n8n.url}/webhook/stripe-template`;
  await sql('old', 'ALTER TABLE business_log RENAME TO business_log_away');
  let first;
  try {
    first = await deliver(direct, e);
  } finally {
    await sql('old', 'ALTER TABLE business_log_away RENAME TO business_log');
  }
  const retry = await deliver(direct, e);
  assert.deepEqual([first.status, retry.status, JSON.parse(retry.body).status], [500, 200, 'duplicate']);
  assert.equal(await count('old', `business_log WHERE event_id = '${e.id}'`), 0);
});

await check('a workflow switched off: 404; switched on: the retry runs', async () => {
  const e = newEvent();
  await n8n.switchOff(behind.id);
  try {
    // Neither switch takes effect at once; other events find out when.
    await until('the webhook to be gone', async () => await ending(hook(behind), newEvent()) === '404 released');
    assert.equal(await ending(hook(behind), e), '404 released');
  } finally {
    await n8n.publish(behind.id);
  }
  await until('the retry to run', async () => {
    const a = await ending(hook(behind), e);
    assert.ok(['200 forwarded', '404 released'].includes(a), a);
    return a === '200 forwarded';
  });
  assert.equal(await rows(e.id), 1);
});

await check('a path that n8n has no webhook for: 404, released; outside /webhook/ n8n tells a robot 204 (as the README warns)', async () => {
  assert.equal(await ending(`${all.url}/webhook/nobody`, newEvent()), '404 released');
  const robot = { 'user-agent': 'Slackbot 1.0 (+https://api.slack.com/robots)' };
  assert.equal((await deliver(`${n8n.url}/webhook/nobody`, newEvent(), robot)).status, 404);
  assert.equal((await deliver(`${n8n.url}/hooks/slack`, newEvent(), robot)).status, 204);
});

// ---- bodies

await check('a body of 15 MB arrives whole, once', async () => {
  const e = newEvent({ padding: 'x'.repeat(15_000_000) });
  assert.deepEqual([await ending(hook(variants.big), e), await ending(hook(variants.big), e)], ['200 forwarded', '200 duplicate']);
  assert.equal(await rows(`${e.id} 15000000`), 1);
});

await check('a body over n8n\'s 16 MiB: n8n fails, and the key is given back; with MAX_BODY=16MiB it is a 413', async () => {
  const e = newEvent({ padding: 'x'.repeat(17 << 20) });
  const a = await to(hook(variants.big), e);
  assert.equal(a.outcome, 'released');
  const small = await Hookonce.start(n8n.url, 'app', { WEBHOOK_PATH: '/webhook/', MAX_BODY: '16MiB' });
  // A 413 comes before the body is through: a sender that is still writing may see the connection break instead.
  const refused = await deliver(hook(variants.big).replace(all.url, small.url), e);
  assert.ok([413, 0].includes(refused.status), JSON.stringify(refused));
  assert.deepEqual(await small.outcomes(), { too_large: 1 });
  await small.stop();
  return `n8n's answer: ${a.status}`;
});

// ---- what is no webhook

await check('/webhook-test/, /webhook-waiting/, /form/, /form-waiting/ and the editor pass through unclaimed', async () => {
  const keys = await count('app', 'processed_events');
  const seen = [];
  for (const p of ['/webhook-test/stripe', '/webhook-waiting/1', '/form/1', '/form-waiting/1', '/healthz', '/rest/settings']) {
    const post = p !== '/healthz' && p !== '/rest/settings';
    const via = post ? await deliver(all.url + p, newEvent()) : await fetch(all.url + p);
    const direct = post ? await deliver(n8n.url + p, newEvent()) : await fetch(n8n.url + p);
    assert.equal(via.status, direct.status, p);
    assert.equal(post ? via.outcome : (via.headers.get('hookonce-outcome') ?? ''), '', p);
    seen.push(`${p} ${via.status}`);
  }
  assert.equal(await count('app', 'processed_events'), keys);
  return seen.join(', ');
});

await editor({ check, front, n8n, workflow: behind, newEvent, rows });

await check('n8n has nothing to say about proxies (N8N_PROXY_HOPS is what it was without hookonce)', async () => {
  assert.doesNotMatch(n8n.log(), /ERR_ERL|X-Forwarded-For|trust proxy|Origin header/i);
});

// ---- n8n dies, and comes back under load

const interrupted = newEvent();
await check('n8n killed in mid-run: 502, outcome unknown', async () => {
  const delivery = to(hook(variants.slow), interrupted);
  await until('the workflow to run', () =>
    count('n8n', `execution_entity WHERE "workflowId" = '${variants.slow.id}' AND status IN ('running', 'waiting')`));
  await sleep(1000); // past the claim and into the Wait node
  await n8n.kill();
  const a = await delivery;
  assert.deepEqual([a.status, a.outcome], [502, 'unknown']);
  assert.equal(await rows(interrupted.id), 0);
});

await check('50 deliveries a second while n8n starts: none is lost, each event runs once', async () => {
  const before = await n8n.executions(behind.id);
  const ids = Array.from({ length: 200 }, () => newEvent().id);
  const tally = {};
  // n8n answers webhooks 200 "n8n is starting up" until its migrations are done: they wait for this lock.
  const unlock = await lock('n8n', 'migrations');
  const waiting = [...ids];
  const done = new Set();
  const provider = (async () => {
    const flights = new Set();
    for (const end = Date.now() + 600_000; done.size < ids.length && Date.now() < end; await sleep(20)) {
      // At most so many at once, as providers do; 200 at once are too many for an n8n that is just starting.
      if (flights.size === 20 || waiting.length === 0) continue;
      const id = waiting.shift();
      const flight = to(hook(behind), { id }).then((a) => {
        const ended = `${a.status} ${a.outcome}`;
        tally[ended] = (tally[ended] ?? 0) + 1;
        if (a.status >= 200 && a.status < 300) done.add(id); else waiting.push(id);
      });
      flights.add(flight);
      flight.finally(() => flights.delete(flight));
    }
    await Promise.all(flights);
  })();
  await sleep(1000);
  n8n.launch();
  await until('n8n to be starting up', () => tally['503 not_ready'] > 50, 300_000);
  await unlock();
  await n8n.ready();
  await provider;
  const told = Object.entries(tally).map(([k, v]) => `${v} × ${k}`).join(', ');
  assert.equal(done.size, ids.length, told);
  const ran = await sql('app', `SELECT event_id, count(*), count(*) FILTER (WHERE prior_outcome = 'none')
    FROM business_log WHERE event_id IN (${ids.map((i) => `'${i}'`)}) GROUP BY event_id`);
  assert.equal(ran.length, ids.length, told);
  assert.deepEqual(ran.filter(([, , untold]) => Number(untold) > 1), [], told);
  const twice = ran.filter(([, n]) => n !== '1').length;
  if (!tally['502 unknown'] && !tally['504 unknown']) {
    assert.equal(twice, 0, told);
    assert.equal(await n8n.settledExecutions(behind.id) - before, ids.length, told);
  }
  return `${told}; ran twice: ${twice}`;
});

await check('after the kill the provider\'s retry runs, and is told that an earlier attempt may have run', async () => {
  assert.equal(await ending(hook(variants.slow), interrupted), '200 forwarded');
  assert.deepEqual(await sql('app', `SELECT prior_outcome FROM business_log WHERE event_id = '${interrupted.id}'`), [['unknown']]);
  assert.equal(await ending(hook(variants.slow), interrupted), '200 duplicate');
});

// ---- moving from the template

const oldEvent = newEvent();
await check('hookonce refuses the template\'s table, and says what to do', async () => {
  assert.equal(JSON.parse((await deliver(`${n8n.url}/webhook/stripe-template`, oldEvent)).body).status, 'processed');
  await assert.rejects(Hookonce.start(n8n.url, 'old', { WEBHOOK_PATH: '/webhook/stripe-template' }), (error) => {
    assert.match(error.message, /claim step/);
    assert.match(error.message, /EVENTS_TABLE/);
    return true;
  });
  await assert.rejects(hookonce(['migrate'], { DATABASE_URL: databaseURL('old') }));
});

let moving;
await check('adopted too early, with the claim step still in the workflow: every event is lost', async () => {
  await hookonce(['migrate', '--adopt'], { DATABASE_URL: databaseURL('old') });
  moving = await Hookonce.start(n8n.url, 'old', { WEBHOOK_PATH: '/webhook/stripe-template' });
  const e = newEvent();
  const a = await deliver(`${moving.url}/webhook/stripe-template`, e);
  assert.deepEqual([a.status, a.outcome, JSON.parse(a.body).status], [200, 'forwarded', 'duplicate']);
  assert.equal(await count('old', `business_log WHERE event_id = '${e.id}'`), 0);
});

await check('with the claim step gone: new events run once, what the template processed is a duplicate', async () => {
  await n8n.switchOff(template.id);
  await n8n.publish(variants.templateMoved.id);
  const url = `${moving.url}/webhook/stripe-template`;
  await until('the workflow without a claim step', async () => (await deliver(url, newEvent())).body.includes('processed'));
  const e = newEvent();
  const answers = [];
  for (const x of [e, e, oldEvent]) answers.push(await deliver(url, x));
  assert.deepEqual(answers.map((a) => `${a.status} ${a.outcome}`), ['200 forwarded', '200 duplicate', '200 duplicate']);
  assert.equal(await count('old', `business_log WHERE event_id = '${e.id}'`), 1);
  await moving.stop();
});

await check('the outcomes add up to the deliveries, and no claim is left open', async () => {
  const outcomes = await all.outcomes();
  assert.equal(Object.values(outcomes).reduce((a, b) => a + b, 0), sent.get(all.url), JSON.stringify(outcomes));
  assert.equal(await count('app', 'processed_events WHERE lease_until IS NOT NULL'), 0);
  assert.equal(await all.stop(), 0);
  return Object.entries(outcomes).map(([k, v]) => `${v} ${k}`).join(', ');
});

await stopAll();
console.log(`logs and screenshots: ${dirs.state}`);
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
