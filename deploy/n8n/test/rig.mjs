// The real things that the checks need: a Postgres, an n8n, as many hookonce as wanted, and a provider that signs.
import { execFile, spawn } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { createWriteStream, mkdtempSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);
export const secret = 'whsec_check';
export const owner = { email: 'owner@example.com', firstName: 'Ada', lastName: 'Owner', password: 'Hookonce-check-1' };

function need(name) {
  if (!process.env[name]) throw new Error(`${name} is not set: start the checks with run.sh`);
  return process.env[name];
}
export const dirs = { state: mkdtempSync(path.join(need('STATE_DIR'), 'run-')), here: import.meta.dirname };

/** Ports that are free now, all different. */
export async function freePorts(count) {
  const servers = await Promise.all(Array.from({ length: count }, async () => {
    const s = net.createServer().listen(0, '127.0.0.1');
    await once(s, 'listening');
    return s;
  }));
  const ports = servers.map((s) => s.address().port);
  await Promise.all(servers.map((s) => new Promise((done) => { s.close(done); })));
  return ports;
}

/** Asks again until the answer is truthy; the last answer is in the error. */
export async function until(what, ask, limit = 60_000, every = 100) {
  let last;
  for (const end = Date.now() + limit; Date.now() < end; await sleep(every)) {
    try { last = await ask(); } catch (error) { last = error; continue; }
    if (last) return last;
  }
  throw new Error(`waited ${limit / 1000} s in vain for ${what} (last: ${last instanceof Error ? last.message : JSON.stringify(last)})`);
}

// ---- Postgres

const postgresPort = need('POSTGRES_PORT');
export const databaseURL = (db) => `postgres://postgres@127.0.0.1:${postgresPort}/${db}?sslmode=disable`;

/** The rows of a query, fields as strings. */
export async function sql(db, query) {
  const { stdout } = await run('psql', ['-XAtqv', 'ON_ERROR_STOP=1', '-F', '\t', databaseURL(db), '-c', query]);
  return stdout.split('\n').filter(Boolean).map((line) => line.split('\t'));
}
export const sqlFile = (db, file) => run('psql', ['-Xqv', 'ON_ERROR_STOP=1', databaseURL(db), '-f', file]);
export const count = async (db, query) => Number((await sql(db, `SELECT count(*) FROM ${query}`))[0][0]);

/** Takes a lock and keeps it until the returned function is called. */
export async function lock(db, table) {
  const psql = spawn('psql', ['-XAtq', databaseURL(db)], { stdio: ['pipe', 'pipe', 'inherit'] });
  psql.stdin.write(`BEGIN; LOCK TABLE ${table} IN ACCESS EXCLUSIVE MODE; SELECT 'locked';\n`);
  await once(psql.stdout, 'data');
  return async () => { psql.stdin.end('COMMIT;\n'); await once(psql, 'exit'); };
}

// ---- processes

function start(name, command, args, env) {
  const out = createWriteStream(path.join(dirs.state, `${name}.log`), { flags: 'a' });
  const child = spawn(command, args, { env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => { text += data; out.write(data); });
  // 'close', not 'exit': by then all that it said has been read.
  const exited = once(child, 'close').then(([code]) => code);
  return { child, exited, log: () => text };
}
const running = new Set();
export async function stopAll() { await Promise.all([...running].map((p) => p.stop())); }

const base = { PATH: process.env.PATH, HOME: dirs.state };

/** n8n with its own database, behind the hookonce that listens on publicPort. */
export class N8N {
  constructor(port, brokerPort, publicPort) {
    this.port = port;
    this.url = `http://127.0.0.1:${port}`;
    const publicURL = `http://127.0.0.1:${publicPort}/`;
    this.env = {
      ...base,
      N8N_LISTEN_ADDRESS: '127.0.0.1', N8N_PORT: port, N8N_RUNNERS_BROKER_PORT: brokerPort,
      N8N_EDITOR_BASE_URL: publicURL, N8N_WEBHOOK_URL: publicURL,
      N8N_SECURE_COOKIE: 'false', // http, on loopback
      N8N_USER_FOLDER: dirs.state, N8N_ENCRYPTION_KEY: 'only-for-these-checks', N8N_LOG_LEVEL: 'info',
      DB_TYPE: 'postgresdb', DB_POSTGRESDB_HOST: '127.0.0.1', DB_POSTGRESDB_PORT: postgresPort,
      DB_POSTGRESDB_DATABASE: 'n8n', DB_POSTGRESDB_USER: 'postgres', DB_POSTGRESDB_PASSWORD: 'unused',
      NODE_FUNCTION_ALLOW_BUILTIN: 'crypto', // the in-workflow template hashes
      // What calls home, or is of no use here and makes starting slower.
      N8N_DIAGNOSTICS_ENABLED: 'false', N8N_VERSION_NOTIFICATIONS_ENABLED: 'false', N8N_TEMPLATES_ENABLED: 'false',
      N8N_PERSONALIZATION_ENABLED: 'false', N8N_HIRING_BANNER_ENABLED: 'false', N8N_DYNAMIC_BANNERS_ENABLED: 'false',
      N8N_COMMUNITY_PACKAGES_ENABLED: 'false', N8N_VERIFIED_PACKAGES_ENABLED: 'false', N8N_ONBOARDING_FLOW_DISABLED: 'true',
      N8N_DISABLED_MODULES: 'mcp-registry,insights,mcp,instance-ai,agents,chat-hub,community-packages',
      // For bursts: n8n's own pool has 2 connections, and all that comes would run at once.
      DB_POSTGRESDB_POOL_SIZE: 10, N8N_CONCURRENCY_PRODUCTION_LIMIT: 20,
      // Executions in a few milliseconds of CPU time instead of a tenth of a second: the checks bring many.
      N8N_EXPRESSION_ENGINE: 'legacy',
    };
  }

  cli(...args) { return run('n8n', args, { env: { ...this.env, N8N_LOG_LEVEL: 'warn' }, maxBuffer: 1 << 26 }); }

  /** Starts the process; ready() says when it is. */
  launch() {
    this.process = start('n8n', 'n8n', ['start'], this.env);
    running.add(this);
  }

  async ready() {
    await until('n8n to be ready', async () => (await fetch(`${this.url}/healthz/readiness`)).status === 200, 600_000);
  }

  async stop() {
    running.delete(this);
    this.process.child.kill('SIGTERM');
    await this.process.exited;
  }

  /** Ends n8n and its task runner at once, as the kernel does when memory is short. */
  async kill() {
    running.delete(this);
    process.kill(-this.process.child.pid, 'SIGKILL');
    await this.process.exited;
  }

  log() { return this.process.log(); }

  /** Asks the editor's own API, as the owner. */
  async rest(method, target, body) {
    const response = await fetch(new URL(`/rest${target}`, this.apiURL ?? this.url), {
      method, headers: { 'content-type': 'application/json', 'browser-id': 'checks', cookie: this.cookie ?? '' },
      body: body && JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} /rest${target}: ${response.status} ${text.slice(0, 300)}`);
    const [cookie] = response.headers.getSetCookie();
    if (cookie) this.cookie = cookie.split(';')[0];
    return JSON.parse(text).data;
  }

  async publish(id) {
    const { versionId } = await this.rest('GET', `/workflows/${id}`);
    await this.rest('POST', `/workflows/${id}/activate`, { versionId });
  }

  switchOff(id) { return this.rest('POST', `/workflows/${id}/deactivate`); }

  executions(id) { return count('n8n', `execution_entity WHERE "workflowId" = '${id}'`); }

  /** The number of a workflow's executions, once none of them runs any more. */
  async settledExecutions(id) {
    await until('executions to end', async () =>
      await count('n8n', `execution_entity WHERE "workflowId" = '${id}' AND status IN ('new', 'running', 'waiting')`) === 0);
    return this.executions(id);
  }
}

const bin = need('HOOKONCE_BIN');
let hookonces = 0;

/** A hookonce in front of n8n. `env` is what an operator would set. */
export class Hookonce {
  static async start(upstream, database, env, port) {
    const h = new Hookonce();
    const [listen, admin] = await freePorts(2);
    h.url = `http://127.0.0.1:${port ?? listen}`;
    h.admin = `http://127.0.0.1:${admin}`;
    h.process = start(`hookonce-${++hookonces}`, bin, ['serve'], {
      ...base, UPSTREAM_URL: upstream, UPSTREAM_PROFILE: 'n8n', DATABASE_URL: databaseURL(database),
      LISTEN_ADDR: `127.0.0.1:${port ?? listen}`, ADMIN_ADDR: `127.0.0.1:${admin}`,
      WEBHOOK_PROVIDER: 'stripe', WEBHOOK_SECRET: secret, ...env,
    });
    running.add(h);
    const ready = until('hookonce to be ready', async () => (await fetch(`${h.admin}/readyz`)).status === 200);
    const code = await Promise.race([ready.then(() => undefined), h.process.exited]);
    if (code !== undefined) {
      running.delete(h);
      throw new Error(`hookonce ended with ${code}: ${h.process.log()}`);
    }
    return h;
  }

  async stop() {
    running.delete(this);
    this.process.child.kill('SIGTERM');
    return this.process.exited;
  }

  /** How many deliveries ended in each outcome. */
  async outcomes() {
    const text = await (await fetch(`${this.admin}/metrics`)).text();
    const found = {};
    for (const [, outcome, n] of text.matchAll(/^hookonce_deliveries_total\{outcome="(\w+)",webhook="[^"]*"\} (\d+)$/gm)) {
      if (n !== '0') found[outcome] = (found[outcome] ?? 0) + Number(n);
    }
    return found;
  }
}

/** Runs hookonce's command line. */
export const hookonce = (args, env = {}) => run(bin, args, { env: { ...base, ...env } });

// ---- the provider

/** Stripe's signature of a body, made now (docs.stripe.com/webhooks/signature). */
export function signature(body, key = secret) {
  const t = Math.floor(Date.now() / 1000);
  return `t=${t},v1=${createHmac('sha256', key).update(`${t}.`).update(body).digest('hex')}`;
}

/** Delivers an event, freshly signed: {status, outcome, body, headers}; status 0 if the connection broke. */
export function deliver(url, event, headers = {}) {
  const body = Buffer.from(typeof event === 'string' ? event : JSON.stringify(event));
  return new Promise((resolve) => {
    const request = http.request(url, {
      method: 'POST', agent: false,
      headers: { 'content-type': 'application/json', 'content-length': body.length, 'stripe-signature': signature(body), ...headers },
    }, (response) => {
      const chunks = [];
      const answer = () => resolve({
        status: response.statusCode, outcome: response.headers['hookonce-outcome'] ?? '', headers: response.headers,
        body: Buffer.concat(chunks).toString(),
      });
      response.on('data', (c) => chunks.push(c)).on('end', answer).on('error', answer);
    });
    request.on('error', (error) => resolve({ status: 0, outcome: '', headers: {}, body: String(error) }));
    request.end(body);
  });
}
