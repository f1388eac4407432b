import { ServerConnection } from '@jupyterlab/services';
import { ISignal, Signal } from '@lumino/signaling';

import { createApi } from '../api';
import { GPUShareModel } from '../model';
import { ITabs } from '../tabs';
import { ISnapshot, IStatus } from '../tokens';
import { session, status } from './builders';

/** A server that answers as it is told, and remembers what it was asked. */
class FakeServer {
  asked: { path: string; lastId: string | null }[] = [];
  /** What `events` answers: a stream that stays open, or an error status. */
  events: 'open' | 'html' | 'buffered' | number = 'open';
  down = false;
  view: IStatus = status([session('idle')]);

  makeRequest = (url: string, init: RequestInit): Promise<Response> => {
    const path = url.replace(/^.*api\/v1\//, '');
    const headers = (init.headers ?? {}) as Record<string, string>;
    this.asked.push({ path, lastId: headers['Last-Event-ID'] ?? null });
    if (this.down) {
      return Promise.reject(new TypeError('Failed to fetch'));
    }
    if (!path.startsWith('events')) {
      return Promise.resolve(
        path.includes(`since=${this.view.rev}`)
          ? answer(304)
          : answer(200, JSON.stringify(listed(this.view)))
      );
    }
    if (typeof this.events === 'number') {
      return Promise.resolve(answer(this.events, '{"message": "no", "reason": "not_found"}'));
    }
    if (this.events === 'html') {
      return Promise.resolve(answer(200, '<html>', 'text/html'));
    }
    const body = new ReadableStream<Uint8Array>({
      start: controller => void (this.stream = controller)
    });
    init.signal?.addEventListener('abort', () => this.open.delete(body));
    this.open.add(body);
    return Promise.resolve({ ...answer(200, '', 'text/event-stream'), body } as Response);
  };

  open = new Set<ReadableStream>();
  stream: ReadableStreamDefaultController<Uint8Array> | undefined;

  say(event: string, id: number, data: unknown): Promise<void> {
    this.stream?.enqueue(
      new TextEncoder().encode(`event: ${event}\nid: ${id}\ndata: ${JSON.stringify(data)}\n\n`)
    );
    return jest.advanceTimersByTimeAsync(0);
  }

  paths(): string[] {
    return this.asked.map(({ path }) => path.replace(/[?&]no_track_activity=1/, ''));
  }
}

function listed(view: IStatus): object {
  const servers = Object.values(view.servers).map(one => ({
    ...one,
    devices: Object.values(one.devices)
  }));
  return { ...view, servers, sessions: Object.values(view.sessions) };
}

function answer(code: number, text = '', type = 'application/json'): Response {
  return {
    ok: code >= 200 && code < 300,
    status: code,
    statusText: String(code),
    headers: { get: (name: string) => (name === 'Content-Type' ? type : null) },
    body: new ReadableStream(),
    text: () => Promise.resolve(text),
    json: () => Promise.resolve(JSON.parse(text) as unknown)
  } as unknown as Response;
}

/** A lone tab: it always leads, and says what it hears to nobody. */
class LoneTab implements ITabs {
  sent: ISnapshot[] = [];
  isDisposed = false;
  tell = new Signal<this, ISnapshot>(this);
  get received(): ISignal<this, ISnapshot> {
    return this.tell;
  }
  send(snapshot: ISnapshot): void {
    this.sent.push(snapshot);
  }
  lead(signal: AbortSignal, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    return work(signal);
  }
  dispose(): void {
    this.isDisposed = true;
  }
}

class FakeDocument extends EventTarget {
  visibilityState: DocumentVisibilityState = 'visible';
  turn(state: DocumentVisibilityState): Promise<void> {
    this.visibilityState = state;
    this.dispatchEvent(new Event('visibilitychange'));
    return jest.advanceTimersByTimeAsync(0);
  }
}

let server: FakeServer;
let page: FakeDocument;
let tab: LoneTab;
let model: GPUShareModel;

async function start(): Promise<void> {
  tab = new LoneTab();
  model = new GPUShareModel({
    api: createApi(
      ServerConnection.makeSettings({ baseUrl: 'http://lab/user/a/' }),
      server.makeRequest
    ),
    tabs: tab,
    document: page as unknown as Document
  });
  await jest.advanceTimersByTimeAsync(0);
}

beforeEach(() => {
  jest.useFakeTimers();
  server = new FakeServer();
  page = new FakeDocument();
});

afterEach(() => {
  model.dispose();
  jest.useRealTimers();
});

test('follows the event stream: first the whole view, then patches', async () => {
  await start();
  expect(model.snapshot.kind).toBe('loading');
  await server.say('status', 1, server.view);
  expect(model.snapshot).toMatchObject({ kind: 'ready', status: { rev: 1 } });
  await server.say('patch', 2, { rev: 2, sessions: { k1: { state: 'active' } } });
  expect(model.snapshot.status?.sessions.k1.state).toBe('active');
  await server.say('decision', 3, { act: 'expand' });
  expect(model.snapshot.status?.rev).toBe(2);
  expect(server.paths()).toEqual(['events']);
});

test('every request says that it is not activity', async () => {
  await start();
  expect(server.asked[0].path).toBe('events?no_track_activity=1');
});

test('a stream that ends is resumed after its last event', async () => {
  await start();
  await server.say('status', 41, server.view);
  server.stream?.close();
  await jest.advanceTimersByTimeAsync(1000);
  expect(server.asked.map(({ lastId }) => lastId)).toEqual([null, '41']);
});

test('a stream that is silent for a minute is resumed', async () => {
  await start();
  await server.say('status', 41, server.view);
  await jest.advanceTimersByTimeAsync(59000);
  expect(server.asked).toHaveLength(1);
  await jest.advanceTimersByTimeAsync(2500);
  expect(server.asked.map(({ lastId }) => lastId)).toEqual([null, '41']);
});

test.each(['html', 404, 501] as const)(
  'polls where events answer %p, and sends only what changed',
  async events => {
    server.events = events;
    await start();
    await jest.advanceTimersByTimeAsync(4000);
    expect(server.paths()).toEqual(['events', 'status', 'status?since=1', 'status?since=1']);
    expect(model.snapshot).toMatchObject({
      kind: 'ready',
      status: { sessions: { k1: { state: 'idle' } } }
    });
  }
);

test('polls where a proxy holds the stream back', async () => {
  await start();
  await jest.advanceTimersByTimeAsync(5001);
  expect(server.paths()).toEqual(['events', 'status']);
  expect(model.snapshot.kind).toBe('ready');
});

test('hidden, it closes the stream and asks nothing; seen again, it resumes', async () => {
  await start();
  await server.say('status', 7, server.view);
  await page.turn('hidden');
  expect(server.open.size).toBe(0);
  await jest.advanceTimersByTimeAsync(600000);
  expect(server.asked).toHaveLength(1);
  await page.turn('visible');
  expect(server.asked[1].lastId).toBe('7');
});

test('opened in the background, it asks nothing', async () => {
  page.visibilityState = 'hidden';
  await start();
  await jest.advanceTimersByTimeAsync(60000);
  expect(server.asked).toEqual([]);
});

test('while the service is gone it tries after 1, 2, 4 … 60 s and keeps what it knew', async () => {
  await start();
  await server.say('status', 7, server.view);
  server.down = true;
  server.stream?.error(new TypeError('gone'));
  await jest.advanceTimersByTimeAsync(0);
  expect(model.snapshot).toMatchObject({ kind: 'gone', status: { rev: 1 } });
  const tries: number[] = [];
  for (let second = 1; second <= 190; second += 1) {
    const before = server.asked.length;
    await jest.advanceTimersByTimeAsync(1000);
    if (server.asked.length > before) {
      tries.push(second);
    }
  }
  expect(tries).toEqual([1, 3, 7, 15, 31, 63, 123, 183]);
});

test('trying now does not wait, and the service back is live again', async () => {
  server.down = true;
  await start();
  await jest.advanceTimersByTimeAsync(8000);
  const before = server.asked.length;
  server.down = false;
  model.retry();
  await jest.advanceTimersByTimeAsync(0);
  expect(server.asked).toHaveLength(before + 1);
  await server.say('status', 9, server.view);
  expect(model.snapshot.kind).toBe('ready');
});

test.each([403, 404])(
  'a server that answers %p offers no sharing, and is not asked again',
  async code => {
    server.events = code;
    server.makeRequest = (url: string) => {
      server.asked.push({ path: url, lastId: null });
      return Promise.resolve(answer(code, 'not here'));
    };
    await start();
    await jest.advanceTimersByTimeAsync(0);
    expect(model.snapshot.kind).toBe('absent');
    const before = server.asked.length;
    await jest.advanceTimersByTimeAsync(600000);
    await page.turn('hidden');
    await page.turn('visible');
    expect(server.asked).toHaveLength(before);
  }
);

test('draws at most twice a second, and always the newest', async () => {
  await start();
  const revs: (number | undefined)[] = [];
  model.changed.connect((_, { status: seen }) => void revs.push(seen?.rev));
  await server.say('status', 1, server.view);
  for (let rev = 2; rev <= 9; rev += 1) {
    await server.say('patch', rev, { rev });
    await jest.advanceTimersByTimeAsync(100);
  }
  await jest.advanceTimersByTimeAsync(1000);
  expect(revs.length).toBeLessThanOrEqual(4);
  expect(revs.at(-1)).toBe(9);
});

test('what another tab hears is shown and not told again', async () => {
  await start();
  const sent = tab.sent.length;
  tab.tell.emit({ ...model.snapshot, kind: 'ready', status: { ...server.view, rev: 5 } });
  expect(model.snapshot.status?.rev).toBe(5);
  expect(tab.sent).toHaveLength(sent);
});

test('disposed, it closes its stream', async () => {
  await start();
  await server.say('status', 7, server.view);
  model.dispose();
  await jest.advanceTimersByTimeAsync(0);
  expect(server.open.size).toBe(0);
  expect(tab.isDisposed).toBe(true);
});
