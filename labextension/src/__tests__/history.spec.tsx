import { fireEvent, render, screen } from '@testing-library/react';

import { TabList } from '../components/tablist';
import { UiProvider } from '../components/context';
import { Usage } from '../components/usage';
import { Timeline } from '../components/timeline';
import { columns, csv, ranked, seriesCsv, stretches, usageCsv } from '../history';
import { stated } from '../status';
import { IHistory } from '../tokens';
import { NOW, session, snapshot, status, trans } from './builders';

const HISTORY: IHistory = {
  since: 0,
  until: 3000,
  step_s: 300,
  series: [
    { at: 0, share: 0.5, utilization: null, gpu_s: 150 },
    { at: 300, share: 1, utilization: 0.9, gpu_s: 300 },
    { at: 1200, share: 0.2, utilization: 0.1, gpu_s: 60 }
  ],
  by_user: { bob: 30, alice: 7200 },
  by_group: { 'a, "b"': 7230 },
  by_day: { '2026-12-01': 7200, '2026-12-02': 30 },
  total_gpu_s: 7230,
  fair: {},
  figures: []
};

function shown(what: JSX.Element, admin = false): HTMLElement {
  const seen = snapshot(status([session('active')], undefined, { admin }));
  const rest = { act: () => Promise.resolve(), openMenu: () => undefined, reveal: () => undefined };
  const value = {
    ...rest,
    snapshot: seen,
    now: NOW,
    trans,
    focused: null,
    rowKeys: true,
    retry: () => undefined
  };
  return render(<UiProvider value={value}>{what}</UiProvider>).container;
}

test('the states a page saw begin are kept, for one’s own sessions only', () => {
  const first = stated(
    {},
    status([session('idle'), session('idle', { id: 'k2', mine: false })]),
    1
  );
  expect(first).toEqual({ k1: [{ at: 1, state: 'idle' }] });
  const same = stated(first, status([session('idle')]), 2);
  expect(same.k1).toBe(first.k1);
  const then = stated(same, status([session('active')]), 3);
  expect(then.k1).toEqual([
    { at: 1, state: 'idle' },
    { at: 3, state: 'active' }
  ]);
});

test('a timeline joins what was decided before the page was open to what the page saw', () => {
  const decided = [
    { act: 'park', text: 'Someone is waiting, and it is idle.', ago_s: 60 },
    { act: 'expand', text: 'It uses nearly all of its share.', ago_s: 80 },
    { act: 'place', text: 'Its share is free there.', ago_s: 100 }
  ];
  const seen = [
    { at: NOW - 40000, state: 'parked' as const },
    { at: NOW - 10000, state: 'active' as const }
  ];
  const list = stretches(session('active'), seen, decided, NOW);
  expect(list.map(one => [one.state, (one.until - one.from) / 1000])).toEqual([
    ['bound', 40],
    ['parked', 20],
    ['parked', 30],
    ['active', 10]
  ]);
  expect(list[1].text).toBe('Someone is waiting, and it is idle.');
});

test('without decisions and without a past the timeline is empty', () => {
  expect(stretches(session('none'), [], [], NOW)).toEqual([]);
});

test('columns for a chart leave a gap where nothing was held, and never read null as 0', () => {
  expect(columns(HISTORY)).toEqual([
    [0, 300, 600, 1200],
    [0.5, 1, null, 0.2],
    [null, 0.9, null, 0.1]
  ]);
});

test('CSV quotes what needs it and leaves empty what was not read', () => {
  expect(csv(['a', 'b'], [['x "y", z', null]])).toBe('a,b\r\n"x ""y"", z",\r\n');
  expect(seriesCsv(HISTORY).split('\r\n')[1]).toBe('1970-01-01T00:00:00.000Z,0.5,,150');
  expect(usageCsv(HISTORY)).toContain('group,"a, ""b""",7230');
});

test('sums stand largest first', () => {
  expect(ranked(HISTORY.by_user).map(([name]) => name)).toEqual(['alice', 'bob']);
});

test('usage names users and groups to an admin only', () => {
  const empty = { ...HISTORY, series: [] };
  const mine = shown(<Usage history={empty} days={7} onDays={() => undefined} />);
  expect(mine.textContent).toContain('2.0 GPU-h');
  expect(mine.textContent).not.toContain('bob');
  const all = shown(<Usage history={empty} days={7} onDays={() => undefined} />, true);
  expect(all.textContent).toContain('bob');
  expect(all.textContent).toContain('admin view');
});

test('each stretch of the band says its state, how long, and why', () => {
  const decided = [{ act: 'place', text: 'Its share is free there.', ago_s: 120 }];
  shown(<Timeline session={session('bound')} decided={decided} history={null} />);
  const band = screen.getByRole('list', { name: 'States over time' });
  expect(band.textContent).toContain('Ready, 2 min. Its share is free there.');
});

test('tabs turn with the arrow keys', () => {
  const turned: string[] = [];
  render(
    <TabList
      tabs={['why', 'timeline']}
      names={{ why: 'Why', timeline: 'Timeline' }}
      shown="why"
      label="About"
      onTurn={to => turned.push(to)}
    />
  );
  fireEvent.keyDown(screen.getByRole('tab', { name: 'Why' }), { key: 'ArrowRight' });
  expect(turned).toEqual(['timeline']);
  expect(document.activeElement?.textContent).toBe('Timeline');
});
