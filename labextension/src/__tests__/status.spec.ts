import { mergePatch } from '../patch';
import { readEvents } from '../sse';
import { heard, patched, traced } from '../status';
import { device, GIB, NOW, session, status } from './builders';

test.each([
  [{ a: 'b' }, { a: 'c' }, { a: 'c' }],
  [{ a: 'b' }, { b: 'c' }, { a: 'b', b: 'c' }],
  [{ a: 'b' }, { a: null }, {}],
  [{ a: ['b'] }, { a: 'c' }, { a: 'c' }],
  [{ a: { b: 'c' } }, { a: { b: 'd', c: null } }, { a: { b: 'd' } }],
  [
    ['a', 'b'],
    ['c', 'd'],
    ['c', 'd']
  ],
  [{ e: null }, { a: 1 }, { e: null, a: 1 }],
  [[1, 2], { a: 'b', c: null }, { a: 'b' }],
  [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }],
  ['a', { b: 1 }, { b: 1 }]
])('merge patch (RFC 7396): %j with %j is %j', (target, patch, result) => {
  const before = JSON.stringify(target);
  expect(mergePatch(target, patch)).toEqual(result);
  expect(JSON.stringify(target)).toBe(before);
});

test('a field that a patch removes is null, not missing', () => {
  const before = status([
    session('idle', { reclaim_in_s: 24, next: { code: 'park', text: '', in_s: 24 } })
  ]);
  const after = patched(before, {
    rev: 2,
    sessions: { k1: { reclaim_in_s: null, next: { in_s: null } } }
  });
  expect(after.rev).toBe(2);
  expect(after.sessions.k1.reclaim_in_s).toBeNull();
  expect(after.sessions.k1.next).toEqual({ code: 'park', text: '', in_s: null });
  expect(before.sessions.k1.reclaim_in_s).toBe(24);
});

test('sessions and devices come and go by patches', () => {
  const before = status([session('idle')]);
  const after = patched(before, {
    sessions: { k1: null, k2: session('none', { id: 'k2' }) },
    servers: { alpha: { devices: { 'GPU-1': { utilization: null, memory_used: 3 * GIB } } } }
  });
  expect(Object.keys(after.sessions)).toEqual(['k2']);
  expect(after.servers.alpha.devices['GPU-1']).toMatchObject({
    utilization: null,
    memory_used: 3 * GIB,
    index: 1
  });
});

test('a duration counts from when its value was heard, not from when others were', () => {
  const before = status([session('idle', { idle_s: 10, reclaim_in_s: 24 })]);
  const first = heard({}, null, before, NOW);
  const after = patched(before, { sessions: { k1: { idle_s: 15 } } });
  const second = heard(first, before, after, NOW + 5000);
  expect(second.k1.idle_s).toBe(NOW + 5000);
  expect(second.k1.reclaim_in_s).toBe(NOW);
});

test('a trace has one point each two seconds, holds what is steady and leaves a gap where nothing was heard', () => {
  const view = status([], [device(0, { utilization: 0.5 })]);
  let traces = traced({}, view, null, NOW);
  traces = traced(traces, view, NOW, NOW + 500);
  expect(traces['GPU-0'].busy).toEqual([0.5]);
  traces = traced(traces, view, NOW, NOW + 4000);
  expect(traces['GPU-0'].busy).toEqual([0.5, 0.5, 0.5]);
  traces = traced(traces, status([], [device(0, { utilization: null })]), NOW + 4000, NOW + 14000);
  expect(traces['GPU-0'].busy).toEqual([0.5, 0.5, 0.5, null, null, null, null, null]);
});

test('a trace keeps two minutes', () => {
  const view = status([], [device(0)]);
  const traces = traced(
    { 'GPU-0': { busy: Array<number>(60).fill(0.1), memory: [] } },
    view,
    NOW,
    NOW + 2000
  );
  expect(traces['GPU-0'].busy).toHaveLength(60);
  expect(traces['GPU-0'].busy.at(-1)).toBe(0.86);
});

function streamOf(...pieces: string[]): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      pieces.forEach(piece => controller.enqueue(new TextEncoder().encode(piece)));
      controller.close();
    }
  });
}

test('events are read however the network cuts them, and comments are no events', async () => {
  const events = [];
  for await (const event of readEvents(
    streamOf(
      ': hello\n\nevent: pat',
      'ch\nid: 7\ndata: {"a"',
      ':1}\n\n',
      'data: x\r\ndata: y\r\n\r\n'
    )
  )) {
    events.push(event);
  }
  expect(events).toEqual([
    { event: 'patch', id: '7', data: '{"a":1}' },
    { event: 'message', id: null, data: 'x\ny' }
  ]);
});
