import { fireEvent, render, screen, waitFor } from '@testing-library/react';
import type uPlot from 'uplot';

import { UiProvider } from '../components/context';
import { Gpus } from '../components/gpus';
import { columnsOf, IScope, limitsOf, readingsCsv, wasRead } from '../readings';
import { IReadings, IStatus } from '../tokens';
import { device, GIB, NOW, snapshot, status, trans } from './builders';

const mockDrawn: uPlot.Options[] = [];

// jsdom has no canvas to draw on.
jest.mock('uplot', () => ({
  __esModule: true,
  default: class {
    constructor(options: uPlot.Options) {
      mockDrawn.push(options);
    }
    setData = (): void => undefined;
    destroy = (): void => undefined;
  }
}));

const NONE = [null, null, null];
const READINGS: IReadings = {
  step_s: 5,
  devices: 1,
  ago_s: [60, 5, 0],
  utilization: [0.2, null, 0.86],
  memory_used: [20 * GIB, 40 * GIB, null],
  memory_utilization: NONE,
  temperature_c: [50, 51, 52],
  power_w: NONE,
  pcie_rx_gb_s: [0, 2.1, 12.34],
  pcie_tx_gb_s: NONE,
  nvlink_rx_gb_s: NONE,
  nvlink_tx_gb_s: NONE
};

function shown(seen: IStatus, scope: IScope, readings: IReadings = READINGS): IScope[] {
  const chosen: IScope[] = [];
  const value = {
    snapshot: snapshot(seen),
    now: NOW,
    trans,
    focused: null,
    rowKeys: true,
    act: () => Promise.resolve(),
    openMenu: () => undefined,
    reveal: () => undefined,
    retry: () => undefined
  };
  render(
    <UiProvider value={value}>
      <Gpus arrived={{ readings, at: NOW }} scope={scope} onScope={one => chosen.push(one)} />
    </UiProvider>
  );
  return chosen;
}

test('readings are columns in time, with a gap where the service looked at nothing for a while', () => {
  const now = NOW / 1000;
  expect(columnsOf(READINGS, ['utilization', 'pcie_rx_gb_s'], NOW)).toEqual([
    [now - 60, now - 55, now - 5, now],
    [0.2, null, null, 0.86],
    [0, null, 2.1, 12.34]
  ]);
});

test('what was never read has no chart, and 0 was read', () => {
  expect(wasRead(READINGS, ['nvlink_rx_gb_s', 'nvlink_tx_gb_s'])).toBe(false);
  expect(wasRead({ ...READINGS, nvlink_tx_gb_s: [null, 0, null] }, ['nvlink_tx_gb_s'])).toBe(true);
});

test('CSV has a column for each reading, empty where nothing was read', () => {
  const [head, first, second] = readingsCsv(READINGS, NOW).split('\r\n');
  expect(head).toBe(
    'at,utilization,memory_used,memory_utilization,temperature_c,power_w,pcie_rx_gb_s,pcie_tx_gb_s,nvlink_rx_gb_s,nvlink_tx_gb_s'
  );
  expect(first).toBe(`2026-12-02T11:59:00.000Z,0.2,${20 * GIB},,50,,0,,,`);
  expect(second.split(',')[1]).toBe('');
});

test('limits are those of all devices together, and unknown where one of them does not tell', () => {
  const two = status([], [device(0), device(1, { power_limit_w: null, temperature_limit_c: 87 })]);
  expect(limitsOf(two, { device: 'GPU-0' })).toEqual({
    memory: 80 * GIB,
    temperature: 92,
    power: 400
  });
  expect(limitsOf(two, {})).toEqual({ memory: 160 * GIB, temperature: 92, power: null });
  expect(limitsOf(two, { server: 'none' }).memory).toBeNull();
});

test('each chart says what it shows and the newest value; a link that is not there has none', () => {
  shown(status([], [device(0)]), { device: 'GPU-0' });
  const charts = screen.getAllByRole('img').map(one => one.getAttribute('aria-label'));
  expect(charts).toEqual([
    'Busy and memory over the last hour, now Busy 86%, Memory –',
    'Temperature over the last hour, now Temperature 52 °C',
    'PCIe over the last hour, now to the GPU 12 GB/s, from the GPU –'
  ]);
});

test('one turns from a GPU to its neighbour and to its server', () => {
  const chosen = shown(status([], [device(0), device(1)]), { device: 'GPU-0' });
  const buttons = screen.getAllByRole('button', { pressed: true });
  expect(buttons.map(one => one.textContent)).toEqual(['GPU 0']);
  fireEvent.click(screen.getByRole('button', { name: 'GPU 1' }));
  fireEvent.click(screen.getByRole('button', { name: 'All' }));
  expect(chosen).toEqual([{ device: 'GPU-1' }, { server: 'alpha' }]);
});

test('of several servers one is chosen, then its GPUs', () => {
  const seen = status([], [device(0), device(1)]);
  const beta = { ...seen.servers.alpha, name: 'beta', devices: { 'GPU-9': device(9) } };
  const chosen = shown({ ...seen, servers: { ...seen.servers, beta } }, {});
  const servers = screen.getByRole('combobox', { name: 'Server' });
  expect(servers.textContent).toBe('All GPUsalphabeta');
  expect(screen.queryByRole('button', { name: 'GPU 0' })).toBeNull();
  fireEvent.change(servers, { target: { value: 'beta' } });
  fireEvent.change(servers, { target: { value: '' } });
  expect(chosen).toEqual([{ server: 'beta' }, {}]);
});

test('marks of an axis are whole seconds apart, each said once, from the first reading on', async () => {
  mockDrawn.length = 0;
  shown(status([], [device(0, { power_limit_w: null })]), { device: 'GPU-0' });
  await waitFor(() => expect(mockDrawn).toHaveLength(3));
  const [use] = mockDrawn;
  const range = use.scales?.x.range as (plot: uPlot | null, from: number, to: number) => number[];
  expect(range(null, 1000, 1000)).toEqual([940, 1000]);
  expect(range(null, 0, 3600)).toEqual([0, 3600]);
  const [times, values] = use.axes ?? [];
  expect(Math.min(...(times.incrs as number[]))).toBe(1);
  const read = values.values as (plot: uPlot | null, ticks: number[]) => string[];
  expect(read(null, [0, 0.001, 0.5, 1])).toEqual(['0%', '', '50%', '100%']);
});

test('before the first reading nothing is drawn', () => {
  shown(status([], [device(0)]), {}, { ...READINGS, devices: 0 });
  expect(screen.queryAllByRole('img')).toEqual([]);
  expect(screen.getByText('Nothing was read yet.')).toBeTruthy();
});
