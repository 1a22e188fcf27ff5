// The workflows that the checks run: the two of this folder as they are, and what is made of them for each check.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { dirs } from './rig.mjs';

const shipped = (file) => JSON.parse(readFileSync(path.join(dirs.here, '..', 'workflows', file), 'utf8'));
export const behind = shipped('behind-hookonce.json');
export const template = shipped('in-workflow-template.json');

/** A copy of `of` under another name, on the webhook path /webhook/<name>. */
function variant(of, name, change = () => {}) {
  const w = structuredClone(of);
  w.id = `check-${name}`;
  w.name = name;
  const webhook = w.nodes.find((n) => n.name === 'Webhook');
  Object.assign(webhook.parameters, { path: name });
  webhook.webhookId = `check-${name}`;
  change(w, webhook);
  return w;
}

/** Puts a node between the webhook and what follows it. */
function insertFirst(w, node) {
  w.nodes.push({ id: `${w.id}-${node.name}`, position: [120, 200], ...node });
  w.connections[node.name] = w.connections.Webhook;
  w.connections.Webhook = { main: [[{ node: node.name, type: 'main', index: 0 }]] };
}
const useWebhookIn = (w, name) => {
  const o = w.nodes.find((n) => n.name === name).parameters.options;
  o.queryReplacement = o.queryReplacement.replaceAll('$json.', "$('Webhook').item.json.");
};
function failing(w) {
  insertFirst(w, { name: 'Fails when told to', type: 'n8n-nodes-base.code', typeVersion: 2,
    parameters: { jsCode: "if ($input.first().json.body.fail) throw new Error('told to fail');\nreturn $input.all();" } });
}
function answerAfterLastNode(w, webhook) {
  webhook.parameters.responseMode = 'lastNode';
  w.nodes = w.nodes.filter((n) => n.name !== 'Respond to Webhook');
  delete w.connections['Business step'];
}

export const variants = {
  second: variant(behind, 'second'),
  throws: variant(behind, 'throws', failing),
  throwsLastNode: variant(behind, 'throws-last-node', (w, webhook) => { failing(w); answerAfterLastNode(w, webhook); }),
  immediately: variant(behind, 'immediately', (w, webhook) => {
    failing(w);
    answerAfterLastNode(w, webhook);
    webhook.parameters.responseMode = 'onReceived';
  }),
  respondsFirst: variant(behind, 'responds-first', (w) => {
    failing(w);
    useWebhookIn(w, 'Business step');
    w.connections = {
      Webhook: { main: [[{ node: 'Respond to Webhook', type: 'main', index: 0 }]] },
      'Respond to Webhook': { main: [[{ node: 'Fails when told to', type: 'main', index: 0 }]] },
      'Fails when told to': { main: [[{ node: 'Business step', type: 'main', index: 0 }]] },
    };
  }),
  goesOn: variant(behind, 'goes-on', (w) => {
    failing(w);
    w.nodes.at(-1).onError = 'continueRegularOutput';
    useWebhookIn(w, 'Business step');
    w.nodes.find((n) => n.name === 'Business step').onError = 'continueRegularOutput';
  }),
  slow: variant(behind, 'slow', (w) => insertFirst(w, {
    name: 'Wait', type: 'n8n-nodes-base.wait', typeVersion: 1.1, webhookId: 'check-slow-wait', parameters: { amount: 8, unit: 'seconds' },
  })),
  big: variant(behind, 'big', (w) => {
    const o = w.nodes.find((n) => n.name === 'Business step').parameters.options;
    o.queryReplacement = o.queryReplacement.replace('$json.body.id', "$json.body.id + ' ' + $json.body.padding.length");
  }),
  unsaved: variant(behind, 'unsaved', (w) => { w.settings.saveDataSuccessExecution = 'none'; }),
  // For moving: the template and, on the same path, what it becomes. They take the template's own database.
  templateOld: template,
  templateMoved: variant(behind, 'moved', (w, webhook) => { webhook.parameters.path = 'stripe-template'; }),
};
for (const w of [variants.templateOld, variants.templateMoved]) {
  for (const n of w.nodes) if (n.credentials) n.credentials.postgres.name = 'Template database';
}

/** Writes workflows and credentials as n8n's command line imports them; returns [credentials file, workflows folder]. */
export function writeForImport(port) {
  const folder = path.join(dirs.state, 'workflows');
  mkdirSync(folder);
  for (const w of [behind, ...Object.values(variants)]) writeFileSync(path.join(folder, `${w.id}.json`), JSON.stringify(w));
  const credential = (id, name, database) => ({ id, name, type: 'postgres',
    data: { host: '127.0.0.1', port: Number(port), database, user: 'postgres', password: '', ssl: 'disable' } });
  const file = path.join(dirs.state, 'credentials.json');
  writeFileSync(file, JSON.stringify([
    credential('checkBusiness001', 'Business database', 'app'), credential('checkTemplate001', 'Template database', 'old'),
  ]));
  return [file, folder];
}
