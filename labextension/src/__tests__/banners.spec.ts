import { bannerOf, happened, IBanner } from '../banners';
import { ISession, ISnapshot, IStatus } from '../tokens';
import { device, GIB, moment, NOW, part, session, status, trans } from './builders';

function shown(
  of: ISession,
  more: Partial<IStatus> = {},
  seen: Partial<ISnapshot> = {}
): IBanner | null {
  return bannerOf(of, null, moment(status([of], undefined, more), seen), trans);
}

test('someone waits: the countdown, keep first, and how much of the notice is left', () => {
  const banner = shown(session('idle', { reclaim_in_s: 24 }));
  expect(banner).toMatchObject({
    kind: 'reclaim',
    text: '**Someone is waiting.** This GPU is idle and will be parked in **0:24**. Your variables stay.',
    urgent: true
  });
  expect(banner?.actions.map(({ label }) => label)).toEqual(['Keep 1 h', 'Let go now']);
  expect(banner?.progress).toBeCloseTo(0.8);
});

test('a notice of parking under 10 s shows no banner, one before a stop always does', () => {
  const warned = session('idle', { reclaim_in_s: 4 });
  expect(shown(warned, { warn_before_s: 5 })).toBeNull();
  const stopped = session('idle', { reclaim_in_s: 4, next: { code: 'stop', text: '', in_s: 4 } });
  expect(shown(stopped, { warn_before_s: 5 })?.text).toBe(
    '**Someone is waiting.** This kernel is idle and will be stopped in **0:04**. Its variables are lost then.'
  );
});

test('waiting shows after two seconds', () => {
  expect(shown(session('waiting', { waiting_s: 1.5, queue_position: 3 }))).toBeNull();
  const banner = shown(session('waiting', { waiting_s: 2, queue_position: 3, eta_s: 240 }));
  expect(banner?.text).toBe(
    '**Waiting for a GPU**, 3rd in line, about 4 min. The cell starts by itself.'
  );
  expect(banner?.actions.map(({ label }) => label)).toEqual(['Run without GPU', 'Stop the cell']);
});

test('started without a GPU keeps its place', () => {
  const banner = shown(
    session('waiting', { waiting_s: 50, next: { code: 'restart', text: '', in_s: null } })
  );
  expect(banner?.text).toBe(
    '**Started without a GPU.** None was free in time. Your place in line is kept. Taking it when it is free needs a kernel restart.'
  );
  expect(banner?.actions.map(({ label }) => label)).toEqual(['Take it when free', 'Stay without']);
});

test('parked, resuming, and in line to come back', () => {
  expect(
    shown(
      session('parked', { parked_bytes: 12.4 * GIB, next: { code: 'cell', text: '', in_s: 2 } })
    )?.text
  ).toBe(
    '**Parked.** 12.4 GiB of GPU memory rest in host memory. Run a cell and they come back, in about 2 s.'
  );
  const coming = session('resuming', {
    parked_bytes: 12.4 * GIB,
    moved_bytes: 7.6 * GIB,
    next: { code: 'resumed', text: '', in_s: 1 }
  });
  expect(shown(coming)?.text).toBe(
    '**Coming back.** 7.6 of 12.4 GiB, about 1 s left. Your cell starts right after.'
  );
  expect(shown(coming)?.closable).toBe(false);
  expect(shown(session('parked', { parked_bytes: GIB, queue_position: 2, eta_s: 60 }))?.text).toBe(
    '**Coming back is in line**, 2nd, about 1 min: the memory must be free first. Nothing is lost.'
  );
});

test('a lost device speaks before everything else', () => {
  const banner = shown(session('lost'), {}, { kind: 'gone', nextTry: NOW + 8000 });
  expect(banner).toMatchObject({ kind: 'lost', tone: 'bad' });
  expect(banner?.text).toBe(
    '**GPU 0 stopped answering.** Its memory is lost; the kernel and what it holds in RAM live on.'
  );
});

test('refused: the server says what was asked, what is allowed and what is kept', () => {
  const refused = session('active', {
    message: 'Not granted. You asked for 4 GPUs; your limit is 2. You keep the 1 you have.',
    next: { code: 'refused', text: '', in_s: null }
  });
  expect(shown(refused)?.text).toBe(
    '**Not granted.** You asked for 4 GPUs; your limit is 2. You keep the 1 you have.'
  );
});

test('the service gone: when the next try is', () => {
  expect(shown(session('active'), {}, { kind: 'gone', nextTry: NOW + 8000 })?.text).toBe(
    '**The GPU service does not answer.** This notebook is untouched. Next try in 8 s.'
  );
});

test('all well shows nothing', () => {
  expect(shown(session('active'))).toBeNull();
  expect(shown(session('idle'))).toBeNull();
  expect(shown(session('none'))).toBeNull();
});

test('what just happened is told: back, and moved', () => {
  const before = session('resuming', { devices: [part(0, 0.1)] });
  expect(happened(before, session('active', { devices: [part(0, 0.1)] }))).toBe('resumed');
  expect(happened(before, session('active', { devices: [part(1, 0.1)] }))).toBe('moved');
  expect(happened(session('bound'), session('active'))).toBeNull();
  expect(happened(undefined, session('active'))).toBeNull();
  const now = session('active', { devices: [part(1, 0.1)] });
  const view = moment(status([now], [device(0), device(1)]));
  expect(bannerOf(now, 'moved', view, trans)?.text).toBe('**Moved to GPU 1.** Nothing was lost.');
  expect(bannerOf(now, 'resumed', view, trans)?.text).toBe('**Back on GPU 1.** Nothing was lost.');
});

test('the service is back: said where its absence was, and only while it answers', () => {
  const one = session('idle');
  const at = (kind: ISnapshot['kind']): IBanner | null =>
    bannerOf(one, 'back', moment(status([one]), { kind }), trans);
  expect(at('ready')?.text).toBe('**The GPU service is back.**');
  expect(at('gone')?.text).toContain('does not answer');
});

test('a silent server is named above the notebooks it runs', () => {
  const one = session('idle');
  const view = status([one]);
  view.servers.alpha = { ...view.servers.alpha, state: 'down', age_s: 130 };
  expect(bannerOf(one, null, moment(view), trans)?.text).toBe(
    '**alpha has been silent for 2 min.** Its GPUs are not offered until it answers. Notebooks there keep running.'
  );
});
