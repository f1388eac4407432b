import { act, fireEvent, render, screen, within } from '@testing-library/react';

import { Action } from '../actions';
import { IUi, UiProvider } from '../components/context';
import { Overview } from '../components/overview';
import { AskForm, gpusOf } from '../components/ask';
import { Why } from '../components/why';
import { IDemand, IDevice, ISession, ISnapshot, IStatus } from '../tokens';
import { device, GIB, NOW, part, session, snapshot, status, trans } from './builders';

it('tells what goes over a link where that was read, and says nothing of a link that is not there', () => {
  const fed = device(0, { pcie_rx_gb_s: 12.34, pcie_tx_gb_s: 0.64 });
  const { container } = showStatus([], [fed, device(1, { nvlink_rx_gb_s: 4.1 })]);
  const link = (name: string): HTMLElement[] => [
    ...container.querySelectorAll<HTMLElement>(`[data-link=${name}]`)
  ];
  expect(link('PCIe').map(one => one.textContent)).toEqual(['PCIe ↓ 12 ↑ 0.6 GB/s']);
  expect(link('PCIe')[0].title).toBe('PCIe: 12 GB/s to the GPU, 0.6 GB/s from it');
  expect(link('NVLink').map(one => one.textContent)).toEqual(['NVLink ↓ 4.1 ↑ – GB/s']);
});

interface IShown {
  acts: [Action, string][];
  menus: string[];
  revealed: string[];
  container: HTMLElement;
}

function ui(seen: ISnapshot): IUi {
  return {
    snapshot: seen,
    now: NOW,
    trans,
    focused: 'k1',
    rowKeys: true,
    act: () => Promise.resolve(),
    openMenu: () => undefined,
    reveal: () => undefined,
    retry: () => undefined
  };
}

function show(seen: ISnapshot, more: Partial<IUi> = {}, what: JSX.Element = <Overview />): IShown {
  const acts: [Action, string][] = [];
  const menus: string[] = [];
  const revealed: string[] = [];
  const value: IUi = {
    ...ui(seen),
    act: (action, id) => {
      acts.push([action, id]);
      return Promise.resolve();
    },
    openMenu: one => menus.push(one.id),
    reveal: one => revealed.push(one.id),
    ...more
  };
  const { container } = render(<UiProvider value={value}>{what}</UiProvider>);
  return { acts, menus, revealed, container };
}

function showStatus(
  sessions: ISession[],
  devices?: IDevice[],
  more: Partial<IStatus> = {},
  asked: Partial<IUi> = {}
): IShown {
  return show(snapshot(status(sessions, devices, more)), asked);
}

function find(container: HTMLElement, selector: string): HTMLElement {
  const found = container.querySelector<HTMLElement>(selector);
  if (!found) {
    throw new Error(`Nothing matches ${selector}`);
  }
  return found;
}

test('the card answers: do I have a GPU, how much of it, what is next, why', () => {
  const { container } = showStatus([session('active')], [device(0, { other_shares: [0.25] })]);
  const card = find(container, '.jp-GPUShare-card[data-session="k1"][data-state="active"]');
  expect(card.textContent).toContain('Computing on GPU 0, A100 80GB');
  expect(within(card).getByText('50%').tagName).toBe('STRONG');
  const meter = within(card).getByRole('meter');
  expect(meter.getAttribute('aria-valuenow')).toBe('50');
  expect(meter.getAttribute('aria-valuetext')).toBe('50%, guaranteed 10%, up to 100%');
  expect(card.textContent).toContain('Grows when the other notebook on GPU 0 pauses.');
  expect(within(card).getByRole('button', { name: 'Why this GPU?' })).toBeTruthy();
  expect(
    [...card.querySelectorAll('dt')].map(dt => `${dt.textContent} ${dt.nextSibling?.textContent}`)
  ).toEqual(['GPU memory 31.2 GiB', 'Busy 86%', 'Charged 1.4 GPU-h']);
});

test('a value that was not read is a dash that says so, never 0', () => {
  const { container } = showStatus([
    session('active', { devices: [{ ...part(0, 0.5), utilization: null, memory_used: null }] })
  ]);
  expect(
    [...container.querySelectorAll('.jp-GPUShare-card dd')].map(dd => [
      dd.textContent,
      dd.getAttribute('title')
    ])
  ).toEqual([
    ['–', 'not read'],
    ['–', 'not read'],
    ['1.4 GPU-h', null]
  ]);
});

test('other notebooks are two lines; only one that needs an answer shows buttons', () => {
  const { container } = showStatus([
    session('active'),
    session('idle', { id: 'k2', label: 'b.ipynb', idle_s: 310, reclaim_in_s: 24 }),
    session('parked', { id: 'k3', label: 'a.ipynb', parked_bytes: 6.1 * GIB }),
    session('idle', { id: 'k4', label: 'c.ipynb', idle_s: 190 })
  ]);
  const rows = [...container.querySelectorAll<HTMLElement>('.jp-GPUShare-row')];
  expect(rows.map(row => row.dataset.session)).toEqual(['k2', 'k4', 'k3']);
  expect(rows.map(row => row.querySelectorAll('[data-action]').length)).toEqual([2, 0, 0]);
  expect(rows[0].getAttribute('aria-label')).toBe('b.ipynb, Parked in 0:24 · idle 5 min, 50%');
  expect(rows[2].textContent).toContain('Parked · 6.1 GiB in host memory');
});

test('keys act on the focused row, and only on it', async () => {
  const { container, acts, menus, revealed } = showStatus([
    session('active'),
    session('idle', { id: 'k2', idle_s: 310, reclaim_in_s: 24 })
  ]);
  const row = find(container, '[data-session="k2"]');
  await act(async () => void fireEvent.keyDown(row, { key: 'k' }));
  await act(async () => void fireEvent.keyDown(row, { key: 'L' }));
  fireEvent.keyDown(row, { key: 'b' }); // nothing to bring back
  fireEvent.keyDown(row, { key: 'k', ctrlKey: true });
  fireEvent.keyDown(find(row, 'button'), { key: 'p' });
  expect(acts).toEqual([
    ['keep', 'k2'],
    ['let-go', 'k2']
  ]);
  fireEvent.keyDown(row, { key: 'F10', shiftKey: true });
  expect(menus).toEqual(['k2']);
  fireEvent.keyDown(row, { key: 'Enter' });
  expect(revealed).toEqual(['k2']);
});

test('a list stays in the tab order when the row that was its stop leaves', () => {
  const [a, b] = ['a', 'b'].map(id => session('none', { id, label: `${id}.ipynb` }));
  const draw = (sessions: ISession[]): JSX.Element => (
    <UiProvider value={{ ...ui(snapshot(status(sessions))), focused: null }}>
      <Overview />
    </UiProvider>
  );
  const { container, rerender } = render(draw([a, b]));
  act(() => find(container, '[data-session="b"]').focus());
  expect(find(container, '[data-session="a"]').tabIndex).toBe(-1);
  rerender(draw([a]));
  expect(find(container, '[data-session="a"]').tabIndex).toBe(0);
});

test('what is kept already offers to stop keeping', () => {
  showStatus([session('active', { pinned_until_s: 1800 })]);
  expect(screen.getByRole('button', { name: 'Stop keeping' })).toBeTruthy();
  expect(screen.queryByRole('button', { name: 'Keep 1 h' })).toBeNull();
});

test('single keys can be turned off', () => {
  const { container, acts } = showStatus(
    [session('idle', { reclaim_in_s: 24 })],
    undefined,
    {},
    { rowKeys: false }
  );
  fireEvent.keyDown(find(container, '.jp-GPUShare-card'), { key: 'k' });
  expect(acts).toEqual([]);
});

test('arrow keys move among the rows and into their buttons; one row is in the tab order', () => {
  const names = ['a', 'b', 'c'];
  const { container } = showStatus(
    names.map(id => session('none', { id, label: `${id}.ipynb` })),
    undefined,
    {},
    { focused: null }
  );
  const rows = names.map(id => find(container, `[data-session="${id}"]`));
  const stops = (): number[] => rows.map(row => row.tabIndex);
  expect(stops()).toEqual([0, -1, -1]);
  rows[0].focus();
  fireEvent.keyDown(rows[0], { key: 'ArrowDown' });
  expect(document.activeElement).toBe(rows[1]);
  expect(stops()).toEqual([-1, 0, -1]);
  fireEvent.keyDown(rows[1], { key: 'End' });
  expect(document.activeElement).toBe(rows[2]);
  fireEvent.keyDown(rows[2], { key: 'ArrowRight' });
  expect(document.activeElement).toBe(
    within(rows[2]).getByRole('button', { name: 'More actions' })
  );
  fireEvent.keyDown(document.activeElement as Element, { key: 'ArrowLeft' });
  expect(document.activeElement).toBe(rows[2]);
  fireEvent.keyDown(rows[2], { key: 'Home' });
  expect(document.activeElement).toBe(rows[0]);
});

test('a button is greyed until the server answers, and a refusal takes its place', async () => {
  let refuse: (error: Error) => void = () => undefined;
  const pending = new Promise<void>((_, reject) => (refuse = reject));
  const { container } = showStatus([session('idle')], undefined, {}, { act: () => pending });
  const button = screen.getByRole<HTMLButtonElement>('button', { name: 'Keep 1 h' });
  fireEvent.click(button);
  expect(button.disabled).toBe(true);
  await act(async () => {
    refuse(new Error('You keep 3 already; your limit is 3.'));
    await pending.catch(() => undefined);
  });
  expect(container.querySelector('.jp-GPUShare-refusal')?.textContent).toBe(
    'You keep 3 already; your limit is 3.'
  );
  expect(screen.queryByRole('button', { name: 'Keep 1 h' })).toBeNull();
});

test('a tile says how busy and full a device is, what is free, and who has how much', () => {
  const devices = [
    device(0, { allocated: 0.75, other_shares: [0.05, 0.2] }),
    device(1, { allocated: 1 })
  ];
  const { container } = showStatus([session('active')], devices);
  const tile = find(container, '[data-device="GPU-0"]');
  expect(tile.dataset.mine).toBe('true');
  expect(tile.getAttribute('aria-label')).toBe('GPU 0, A100 80GB, 25% free');
  expect(tile.textContent).toContain('Busy86%');
  expect(tile.textContent).toContain('47 / 80 GiB');
  expect(tile.textContent).toContain('63 °C');
  const slices = [...tile.querySelectorAll<HTMLElement>('.jp-GPUShare-slices > span')];
  expect(
    slices.map(slice => [slice.dataset.kind, slice.style.getPropertyValue('--share')])
  ).toEqual([
    ['mine', '0.5'],
    ['others', '0.2'],
    ['others', '0.05']
  ]);
  expect(find(container, '[data-device="GPU-1"]').getAttribute('aria-label')).toBe(
    'GPU 1, A100 80GB, full'
  );
});

test('what belongs to no notebook keeps a device from being offered, and a lost one says so', () => {
  const foreign = {
    pid: null,
    owner: null,
    memory: 17.6 * GIB,
    why: 'foreign' as const,
    session: null
  };
  const { container } = showStatus(
    [],
    [
      device(0, { others: [foreign], allocated: 0 }),
      device(1, { state: 'lost', reason: 'It fell off the bus.', allocated: 0 }),
      device(2, { allocated: 0.5 })
    ]
  );
  expect(find(container, '[data-device="GPU-0"]').textContent).toContain(
    'not offered17.6 GiB belong to no notebook. An admin can free it.'
  );
  expect(find(container, '[data-device="GPU-1"]').textContent).toContain(
    'stopped answeringIt fell off the bus.'
  );
  expect(screen.getByText('0.5 of 3 free')).toBeTruthy();
});

test('old readings are marked', () => {
  const { container } = showStatus([], [device(0, { age_s: 40 }), device(1, { age_s: 2 })]);
  expect(find(container, '[data-device="GPU-0"]').dataset.stale).toBe('true');
  expect(find(container, '[data-device="GPU-1"]').dataset.stale).toBeUndefined();
});

test('over twelve devices the servers are a tree: a line opens with the arrow key, a device shows its tile', () => {
  const many = Array.from({ length: 16 }, (_, index) => device(index, { allocated: 0.5 }));
  showStatus([], many);
  const line = screen.getByRole('treeitem', { name: 'alpha, 8 of 16 free' });
  expect(line.getAttribute('aria-expanded')).toBe('false');
  line.focus();
  fireEvent.keyDown(line, { key: 'ArrowRight' });
  expect(line.getAttribute('aria-expanded')).toBe('true');
  const [first] = screen.getAllByRole('treeitem', { name: 'GPU 0, A100 80GB, 50% free' });
  fireEvent.click(first);
  expect(screen.getByText('time-sliced')).toBeTruthy();
});

test('the search field and the filters narrow the tree, and say so when nothing is left', () => {
  const many = Array.from({ length: 16 }, (_, index) =>
    device(index, { allocated: index === 5 ? 0.2 : 1 })
  );
  showStatus([], many);
  fireEvent.click(screen.getByRole('button', { name: 'Free now 1' }));
  expect(screen.getByRole('treeitem', { name: 'GPU 5, A100 80GB, 80% free' })).toBeTruthy();
  const search = screen.getByRole('searchbox', { name: 'Search GPUs' });
  fireEvent.change(search, { target: { value: 'model:H100' } });
  expect(screen.getByText('No GPU matches.')).toBeTruthy();
  fireEvent.click(screen.getByRole('button', { name: 'Clear the filter' }));
  expect(screen.getByRole('button', { name: 'All 16' })).toBeTruthy();
});

test('the line one stands in: squares ahead, you, squares behind; a number where it is long', () => {
  const waiting = session('waiting', { queue_position: 2, waiting_s: 61 });
  const { container } = showStatus([waiting], undefined, { queue: [null, 'k1', null, null] });
  const line = find(container, '.jp-GPUShare-queue');
  expect([...line.children].map(square => (square as HTMLElement).dataset.kind)).toEqual([
    'ahead',
    'me',
    'behind',
    'behind'
  ]);
  expect(line.getAttribute('aria-label')).toBe('1 ahead of you, 2 behind');
});

test.each<[string, ISnapshot, string]>([
  [
    'loading',
    { ...snapshot(status([])), kind: 'loading', status: null },
    'Asking the GPU service…'
  ],
  [
    'absent',
    { ...snapshot(status([])), kind: 'absent', status: null },
    'This server does not offer GPU sharing.'
  ],
  [
    'no notebook',
    snapshot(status([])),
    'No notebook is running. Start one and it gets a GPU when it needs it.'
  ],
  ['no GPU', snapshot(status([session('none')], [])), 'No GPU was found on this machine.'],
  [
    'gone',
    snapshot(status([session('active')]), { kind: 'gone', nextTry: NOW + 8000 }),
    'No answer from the GPU service. Running notebooks are untouched. Next try in 8 s. Try now'
  ],
  [
    'degraded',
    snapshot(status([], undefined, { degraded: [{ code: 'ledger', message: 'locked' }] })),
    'Usage is not being recorded just now: the database does not answer. Sharing goes on as usual.'
  ]
])('%s has its own words', (_, seen, text) =>
  expect(show(seen).container.textContent).toContain(text)
);

test('while the service is gone the last data stays, dated, and nothing can be asked', () => {
  const { container } = show(
    snapshot(status([session('active')]), { kind: 'gone', nextTry: NOW + 8000 })
  );
  expect(screen.getAllByText(/^as of \d\d:\d\d$/)).toHaveLength(2);
  expect(screen.getByRole<HTMLButtonElement>('button', { name: 'Keep 1 h' }).disabled).toBe(true);
  expect(find(container, '[data-device="GPU-0"]').dataset.stale).toBe('true');
});

test('simulated devices are marked in the heading', () => {
  showStatus([], undefined, { simulated: true });
  expect(screen.getByText('simulated')).toBeTruthy();
});

test('others are named only to an admin, apart from one’s own', () => {
  const sessions = [
    session('active'),
    session('idle', { id: 'k2', user: 'bob', mine: false, label: 'bob.ipynb' })
  ];
  const { container } = showStatus(sessions);
  expect(container.textContent).not.toContain('bob');
  const admin = showStatus(sessions, undefined, { admin: true }).container;
  expect(admin.textContent).toContain('admin view');
  expect(find(admin, '[data-session="k2"]').textContent).toContain('bob');
});

test('why: each term with what it adds, what else was possible, and what is not known as a dash', () => {
  const one = session('active');
  const why = {
    terms: [
      { name: 'compute', value: 0.8, weight: 0.5, text: '250 of 312 TFLOP/s' },
      { name: 'energy', value: -0.5, weight: 0.2, text: '+38 W' }
    ],
    alternatives: [
      { device: 'GPU-1', fitness: 0.25, decisive: 'compute', text: 'less compute free' },
      { device: 'GPU-9', fitness: null, decisive: 'memory', text: '9 GiB free, you need 31 GiB' }
    ],
    decided: [{ text: 'Its share is free there.', ago_s: 130 }]
  };
  const { container } = show(snapshot(status([one])), {}, <Why session={one} why={why} />);
  expect(find(container, 'h1').textContent).toBe('GPU 0 was chosen.');
  expect(
    [...container.querySelectorAll('.jp-GPUShare-terms > .jp-GPUShare-value')].map(
      value => value.textContent
    )
  ).toEqual(['+0.40', '−0.10', '0.30']);
  expect([...container.querySelectorAll('tr[data-device]')].map(row => row.textContent)).toEqual([
    'GPU 0 A100 80GB0.30chosen',
    'GPU 1 A100 80GB0.25less free compute',
    'GPU-9 not possible–9 GiB free, you need 31 GiB'
  ]);
});

test.each([
  ['0.5', 0.5],
  ['0,5', 0.5],
  ['2', 2],
  ['0', 0],
  ['1.5', null],
  ['-1', null],
  ['', null],
  ['many', null]
])('a wish for %p GPUs is %p', (text, gpus) => expect(gpusOf(text)).toBe(gpus));

test('the form says how long a wish takes, and what is not usable', async () => {
  jest.useFakeTimers();
  const wishes: (IDemand | null)[] = [];
  const asked: IDemand[] = [];
  const estimate = (demand: IDemand): Promise<number | null> => {
    asked.push(demand);
    return Promise.resolve(demand.gpus > 1 ? 240 : 0);
  };
  render(
    <AskForm
      demand={{ gpus: 0.1 }}
      status={status([])}
      trans={trans}
      estimate={estimate}
      onChange={demand => wishes.push(demand)}
    />
  );
  const settle = (): Promise<void> => act(() => jest.advanceTimersByTimeAsync(300));
  await settle();
  expect(screen.getByRole('status').textContent).toBe('Starts now.');
  fireEvent.change(screen.getByLabelText('GPUs'), { target: { value: '2' } });
  fireEvent.change(screen.getByLabelText('Memory, GiB'), { target: { value: '40' } });
  fireEvent.change(screen.getByLabelText('Model'), { target: { value: 'A100' } });
  await settle();
  expect(screen.getByRole('status').textContent).toBe('Waits: about 4 min.');
  expect(asked.at(-1)).toEqual({
    gpus: 2,
    exclusive: false,
    memory: 40 * GIB,
    constraints: { model: 'A100' }
  });
  fireEvent.change(screen.getByLabelText('GPUs'), { target: { value: '1.5' } });
  await settle();
  expect(screen.getByRole('status').textContent).toBe(
    'GPUs: below 1 for a part of one, or a whole number.'
  );
  expect(wishes.at(-1)).toBeNull();
  jest.useRealTimers();
});
