import { fireEvent, render, screen, waitFor, within } from '@testing-library/react';
import { Signal } from '@lumino/signaling';

import { IApi } from '../api';
import { App } from '../hub/app';
import { headline } from '../hub/figures';
import { bundle } from '../hub/language';
import { asked, inLine, outBy, pressure, resting, trend, wantedBy } from '../hub/pressure';
import { whatHoldsIt, whyItWaits } from '../hub/pressure';
import { IScope } from '../readings';
import { IGPUShareModel, IHistory, ISession, IStatus } from '../tokens';
import { device, GIB, moment, part, session, snapshot, status, trans } from './builders';

beforeAll(() => {
  // jsdom has no dialogs
  HTMLDialogElement.prototype.showModal = function (this: HTMLDialogElement) {
    this.open = true;
  };
  const nothing = (): void => undefined;
  global.ResizeObserver = function () {
    return { observe: nothing, unobserve: nothing, disconnect: nothing };
  } as unknown as typeof ResizeObserver;
});

const HISTORY: IHistory = {
  since: 0,
  until: 1,
  step_s: 300,
  series: [],
  by_user: { alice: 7200, bob: 3600 },
  by_group: {},
  by_day: {},
  total_gpu_s: 10800,
  fair: { alice: 0.5, bob: 0.5 },
  figures: []
};

function waiting(id: string, place: number, more: Partial<ISession> = {}): ISession {
  return session('waiting', { id, queue_position: place, waiting_s: 10 * place, ...more });
}

/** Bob computes on GPU 0, Alice rests on GPU 1, and two are in line. */
function hub(more: Partial<IStatus> = {}): IStatus {
  return status(
    [
      session('active', { id: 'a', user: 'bob', mine: false, devices: [part(0, 1)] }),
      session('idle', { id: 'b', idle_s: 600, devices: [part(1, 0.5)] }),
      waiting('w2', 2, { user: 'bob', mine: false }),
      waiting('w1', 1, { demand: { gpus: 2, constraints: { model: 'A100' } } })
    ],
    [device(0, { allocated: 1 }), device(1, { allocated: 0.5 }), device(2, { state: 'lost' })],
    { admin: true, queue: ['w1', 'w2'], summary: { devices: 3, free: 0.5, waiting: 2 }, ...more }
  );
}

describe('a language', () => {
  const german = bundle('de', {
    Queue: ['Warteschlange'],
    '%1 server of %2': ['%1 Server von %2', '%1 Server (mehrere) von %2'],
    'unit\u0004GPU': ['Karte', 'Karten']
  });

  it('says what it knows, in the right form, and leaves the rest as it is', () => {
    expect(german.__('Queue')).toBe('Warteschlange');
    expect(german.__('free: %1 and %2', 3, 'x')).toBe('free: 3 and x');
    expect(german._n('%1 server of %2', '%1 servers of %2', 1, 4)).toBe('1 Server von 4');
    expect(german._n('%1 server of %2', '%1 servers of %2', 0.5, 4)).toMatch(/mehrere/);
    expect(german._np('unit', 'GPU', 'GPUs', 2)).toBe('Karten');
    expect(german._np('other', 'GPU', 'GPUs', 2)).toBe('GPUs');
  });

  it('takes the last form there is where its rules name more', () => {
    expect(bundle('fr', { a: ['un', 'plusieurs'] })._n('a', 'b', 1000000)).toBe('plusieurs');
  });
});

describe('pressure', () => {
  it('sums what computes, what rests and what is out of service', () => {
    expect(pressure(hub())).toEqual({ devices: 3, computing: 1, idle: 0.5, out: 1, waiting: 2 });
    expect(outBy(hub(), () => 'lost')).toEqual([['lost', 1]]);
  });

  it('names those in line as they will be served, and those that rest by how long', () => {
    const seen = hub();
    expect(inLine(seen).map(one => one.id)).toEqual(['w1', 'w2']);
    expect(wantedBy(inLine(seen))).toEqual([
      ['A100', 1],
      ['', 1]
    ]);
    expect(resting(moment(seen)).map(one => one.id)).toEqual(['b']);
  });

  it('says what is asked for', () => {
    const demand = { gpus: 1, memory: 60 * GIB, exclusive: true, constraints: { model: 'A100' } };
    expect(asked(session('waiting', { demand }), trans)).toBe('1 × A100, 60.0 GiB, exclusive');
    expect(asked(session('waiting', { demand: { gpus: 0.25 } }), trans)).toBe('25% of any');
  });

  it.each([
    [{ gpus: 1, constraints: { model: 'H100' } }, 1, 'no H100 is in service'],
    [{ gpus: 1 }, 1, 'no GPU is free as a whole'],
    [{ gpus: 0.75 }, 1, 'no GPU has 75% free'],
    [{ gpus: 0.25, memory: 60 * GIB }, 1, '60.0 GiB are free nowhere'],
    [{ gpus: 0.25 }, 3, 'behind 2 with a higher claim'],
    [{ gpus: 0.25 }, 1, 'is served next']
  ])('says why %j in place %i waits', (demand, place, words) => {
    expect(whyItWaits(waiting('w', place, { demand }), hub(), trans)).toBe(words);
  });

  it('says what holds a device whose session rests', () => {
    const seen = moment(hub());
    expect(whatHoldsIt(session('idle', { pinned_until_s: 60 }), seen, trans)).toMatch(
      /^kept until/
    );
    expect(whatHoldsIt(session('idle', { reclaim_in_s: 24 }), seen, trans)).toBe('parked in 0:24');
    expect(whatHoldsIt(session('idle', { reclaim_in_s: 90 }), seen, trans)).toBe(
      'protected for 1 min'
    );
    expect(whatHoldsIt(session('idle'), seen, trans)).toBe('nobody needs it');
  });

  it('draws a trend with gaps where nothing was noted, ten minutes at least', () => {
    const figure = { waiting: 2, computing: 1, idle: 0, out: 0 };
    const { points, span_s } = trend([{ ...figure, ago_s: 60 }], 'waiting', 4);
    expect(span_s).toBe(600);
    expect(points).toHaveLength(60);
    expect(points[0]).toBeNull();
    expect(points[53]).toBe(0.5);
  });
});

describe('the headline', () => {
  it('tells an admin where the pressure is', () => {
    expect(headline(hub(), trans)).toBe('2 wait while 0.5 GPUs are held idle.');
    expect(headline(hub({ queue: [] }), trans)).toBe(
      '0.5 of 3 GPUs are free; nobody waits. 1 is out of service.'
    );
    expect(headline(status([], [], { admin: true }), trans)).toMatch(/^No GPU server/);
  });

  it('tells a user what they have', () => {
    expect(headline(hub({ admin: false }), trans)).toBe('You are 1st in line, no estimate yet.');
    const own = status([session('active')], undefined, {
      summary: { devices: 2, free: 1.5, waiting: 0 }
    });
    expect(headline(own, trans)).toBe('You hold 0.5 GPUs; 1.5 of 2 are free.');
  });
});

function boxed(container: HTMLElement, name: string): HTMLElement {
  const found = container.querySelector<HTMLElement>(`[data-box=${name}]`);
  if (!found) {
    throw new Error(`There is no box ${name}.`);
  }
  return found;
}

interface IShown {
  calls: string[];
  container: HTMLElement;
}

/** The page on a service that says no where `refused` is given. */
async function shown(seen: IStatus, refused?: string): Promise<IShown> {
  const calls: string[] = [];
  const answer = (call: string): Promise<void> => {
    calls.push(call);
    return refused ? Promise.reject(new Error(refused)) : Promise.resolve();
  };
  const api = {
    history: ({ user }: { user?: string }) => {
      calls.push(`history ${user ?? ''}`.trim());
      return Promise.resolve(HISTORY);
    },
    readings: (scope: IScope) => {
      calls.push(`readings ${JSON.stringify(scope)}`);
      return Promise.resolve({ devices: 0 });
    },
    act: (id: string, verb: string) => answer(`${verb} ${id}`),
    pin: (id: string) => answer(`pin ${id}`),
    drain: (uuid: string, drained: boolean) => answer(`${drained ? 'drain' : 'undrain'} ${uuid}`)
  } as unknown as IApi;
  const model = { snapshot: snapshot(seen), retry: () => undefined } as unknown as IGPUShareModel;
  Object.assign(model, { changed: new Signal(model) });
  const { container } = render(<App model={model} api={api} trans={trans} />);
  await waitFor(() => expect(calls).toContain('history'));
  await screen.findAllByText(/GPU-h/);
  return { calls, container };
}

describe('the page', () => {
  it('shows an admin everybody, and drains a device after a question', async () => {
    const { calls, container } = await shown(hub());
    expect(screen.getByRole('group', { name: 'Waiting' }).textContent).toMatch(/^Waiting2 longest/);
    const rows = within(boxed(container, 'queue'));
    expect(rows.getAllByRole('row')).toHaveLength(3);
    fireEvent.click(screen.getByRole('button', { name: 'Drain… GPU 0, alpha' }));
    expect(calls).not.toContain('drain GPU-0');
    fireEvent.click(screen.getByRole('button', { name: 'Drain' }));
    expect(calls).toContain('drain GPU-0');
  });

  it('offers a drained device again at once, and says what the service refused', async () => {
    const seen = status([], [device(0, { state: 'draining' })], { admin: true });
    const { calls } = await shown(seen, 'The broker is away.');
    fireEvent.click(screen.getByRole('button', { name: 'Offer again GPU 0, alpha' }));
    expect(calls).toContain('undrain GPU-0');
    expect((await screen.findByRole('alert')).textContent).toBe('The broker is away.');
  });

  it('parks what rests from its line, and lets a user be looked at', async () => {
    const { calls, container } = await shown(hub());
    fireEvent.click(within(boxed(container, 'resting')).getByRole('button'));
    expect(calls).toContain('park b');
    fireEvent.click(screen.getByRole('button', { name: 'bob' }));
    await waitFor(() => expect(calls).toContain('history bob'));
  });

  it('shows a user no button of an admin, and their use beside the fair share', async () => {
    const mine = [waiting('w1', 2), session('idle', { id: 'b' })];
    const { container } = await shown(status(mine, undefined, { queue: [null, 'w1'] }));
    expect(screen.queryByRole('button', { name: /Drain/ })).toBeNull();
    expect(container.querySelector('[data-box=resting]')).toBeNull();
    expect(screen.getByRole('group', { name: 'Your use' }).textContent).toContain('67%');
    expect(screen.getByRole('group', { name: 'Your use' }).textContent).toContain('50%');
  });

  it('shows the last hour of all GPUs, of a server or of one GPU', async () => {
    const { calls, container } = await shown(hub({ admin: false }));
    const gpus = within(boxed(container, 'gpus'));
    await gpus.findByText('Nothing was read yet.');
    fireEvent.click(gpus.getByRole('button', { name: 'GPU 1' }));
    await waitFor(() => expect(calls).toContain('readings {"device":"GPU-1"}'));
    expect(calls.filter(call => call.startsWith('readings'))).toHaveLength(2);
    expect(gpus.getByRole('button', { name: 'GPU 1', pressed: true })).toBeTruthy();
  });

  it('opens a menu whose end gives the focus back', async () => {
    const { calls } = await shown(hub());
    const [more] = screen.getAllByRole('button', { name: 'More actions' });
    fireEvent.click(more);
    fireEvent.keyDown(screen.getByRole('menu'), { key: 'Escape' });
    expect(screen.queryByRole('menu')).toBeNull();
    expect(document.activeElement).toBe(more);
    fireEvent.click(more);
    fireEvent.click(screen.getByRole('menuitem', { name: 'Run without GPU' }));
    expect(calls).toContain('release w1');
  });
});
