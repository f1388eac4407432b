/** The last hour of devices: for a chart and for export. Pure. */
import { csv, gapped } from './history';
import { IReadings, IStatus } from './tokens';

/** Whose readings: one device's, those of a server together, or those of all. */
export type IScope = { device: string } | { server: string } | Record<string, never>;

/** Seconds since 1970, oldest first, and of each line its values then; null: not read. */
export type Columns = [number[], ...(number | null)[][]];

export type Reading = Exclude<keyof IReadings, 'ago_s' | 'step_s' | 'devices'>;

const FIELDS: Reading[] = [
  'utilization',
  'memory_used',
  'memory_utilization',
  'temperature_c',
  'power_w',
  'pcie_rx_gb_s',
  'pcie_tx_gb_s',
  'nvlink_rx_gb_s',
  'nvlink_tx_gb_s'
];

/** How often they are asked for while somebody looks. */
export const READ_MS = 10000;

const QUIET_STEPS = 3; // a service that has little to do looks less often

/** What devices have together, the highest of temperatures; null where one of them does not tell. */
export interface ILimits {
  memory: number | null;
  temperature: number | null;
  power: number | null;
}

/** `now`: when the readings arrived, ms of Date.now. */
export function columnsOf(readings: IReadings, fields: Reading[], now: number): Columns {
  const at = readings.ago_s.map(ago => Math.round(now / 1000 - ago));
  return gapped(
    at,
    fields.map(field => readings[field]),
    readings.step_s,
    QUIET_STEPS * readings.step_s
  );
}

export function wasRead(readings: IReadings, fields: Reading[]): boolean {
  return fields.some(field => readings[field].some(value => value !== null));
}

export function readingsCsv(readings: IReadings, now: number): string {
  return csv(
    ['at', ...FIELDS],
    readings.ago_s.map((ago, row) => [
      new Date(Math.round(now - 1000 * ago)).toISOString(),
      ...FIELDS.map(field => readings[field][row])
    ])
  );
}

export function limitsOf(status: IStatus, scope: IScope): ILimits {
  const devices = Object.values(status.servers)
    .filter(({ name }) => !('server' in scope) || name === scope.server)
    .flatMap(server => Object.values(server.devices))
    .filter(({ uuid }) => !('device' in scope) || uuid === scope.device);
  const known = (values: (number | null)[]): number[] | null =>
    values.length > 0 && values.every(value => value !== null) ? (values as number[]) : null;
  const sum = (values: number[] | null): number | null =>
    values?.reduce((total, value) => total + value, 0) ?? null;
  const limits = known(devices.map(device => device.temperature_limit_c));
  return {
    memory: sum(known(devices.map(device => device.memory_total))),
    temperature: limits && Math.max(...limits),
    power: sum(known(devices.map(device => device.power_limit_w)))
  };
}
