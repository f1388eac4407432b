/** The status as it is kept: patches applied, what was removed made null, durations and traces remembered. Pure. */
import { lookup } from './lookup';
import { mergePatch } from './patch';
import { DURATIONS, Heard, IDevice, IServer, ISession, IStates, IStatus, ITrace } from './tokens';

/** Merge patches remove a key to say null; these put the null back. */
const NO_SESSION: Partial<ISession> = {
  server: null,
  path: null,
  idle_s: null,
  reclaim_in_s: null,
  pinned_until_s: null,
  queue_position: null,
  eta_s: null,
  waiting_s: null,
  parked_bytes: null,
  moved_bytes: null,
  singleuser: null,
  message: '',
  devices: []
};
const NO_DEVICE: Partial<IDevice> = {
  reason: null,
  cannot_park: null,
  memory_total: null,
  memory_used: null,
  memory_unaccounted: null,
  utilization: null,
  memory_utilization: null,
  temperature_c: null,
  temperature_limit_c: null,
  power_w: null,
  power_limit_w: null,
  age_s: null,
  pcie_rx_gb_s: null,
  pcie_tx_gb_s: null,
  nvlink_rx_gb_s: null,
  nvlink_tx_gb_s: null,
  allocated: null,
  other_shares: [],
  others: []
};

const TRACE_POINTS = 60;
const TRACE_STEP_MS = 2000;

function mapValues<T>(
  map: Record<string, T> | undefined,
  change: (value: T) => T
): Record<string, T> {
  return Object.fromEntries(Object.entries(map ?? {}).map(([key, value]) => [key, change(value)]));
}

function filledDevice(device: IDevice): IDevice {
  return { ...NO_DEVICE, ...device };
}

function filledServer(server: IServer): IServer {
  return {
    ...server,
    age_s: server.age_s ?? null,
    devices: mapValues(server.devices, filledDevice)
  };
}

function filledSession(session: ISession): ISession {
  const next = { ...session.next, in_s: session.next.in_s ?? null };
  return { ...NO_SESSION, ...session, next };
}

/** The same status with every field that may be null present. */
export function completed(status: IStatus): IStatus {
  return {
    ...status,
    degraded: status.degraded ?? [],
    queue: status.queue ?? [],
    servers: mapValues(status.servers, filledServer),
    sessions: mapValues(status.sessions, filledSession)
  };
}

/** Only what the patch names is made new: a hub's thousands of other sessions are not looked at. */
export function patched(status: IStatus, patch: unknown): IStatus {
  const named = patch as Partial<Pick<IStatus, 'sessions' | 'servers'>>;
  const merged = mergePatch(status, patch) as IStatus; // its maps are new where the patch names them
  for (const id of Object.keys(named.sessions ?? {})) {
    if (merged.sessions[id]) {
      merged.sessions[id] = filledSession(merged.sessions[id]);
    }
  }
  for (const name of Object.keys(named.servers ?? {})) {
    if (merged.servers[name]) {
      merged.servers[name] = filledServer(merged.servers[name]);
    }
  }
  return {
    ...merged,
    degraded: merged.degraded ?? [],
    queue: merged.queue ?? [],
    servers: merged.servers ?? {},
    sessions: merged.sessions ?? {}
  };
}

/** When each running duration was last heard: now where its value differs from before, else as before. */
export function heard(earlier: Heard, before: IStatus | null, after: IStatus, now: number): Heard {
  const result: Heard = {};
  for (const session of lookup(after).sessions) {
    const { id } = session;
    const old = before?.sessions[id];
    const times = earlier[id];
    result[id] =
      times && old === session
        ? times
        : Object.fromEntries(
            DURATIONS.map(field => [
              field,
              old?.[field] === session[field] ? (times?.[field] ?? now) : now
            ])
          );
  }
  return result;
}

/** The traces with the present readings added: at most one point each two seconds, a gap where nothing was heard. */
export function traced(
  traces: Record<string, ITrace>,
  status: IStatus,
  before: number | null,
  now: number
): Record<string, ITrace> {
  const steps =
    before === null ? 1 : Math.floor(now / TRACE_STEP_MS) - Math.floor(before / TRACE_STEP_MS);
  if (steps < 1) {
    return traces;
  }
  const gaps = Array<null>(Math.min(steps - 1, TRACE_POINTS)).fill(null);
  const add = (points: (number | null)[], value: number | null): (number | null)[] => {
    // A quiet while shorter than three points is a steady value, not a gap.
    const between = gaps.length < 3 ? gaps.map(() => points.at(-1) ?? null) : gaps;
    return [...points, ...between, value].slice(-TRACE_POINTS);
  };
  const result: Record<string, ITrace> = {};
  for (const server of Object.values(status.servers)) {
    for (const device of Object.values(server.devices)) {
      const trace = traces[device.uuid] ?? { busy: [], memory: [] };
      result[device.uuid] = {
        busy: add(trace.busy, device.utilization),
        memory: add(trace.memory, occupancy(device))
      };
    }
  }
  return result;
}

const MOST_STATES = 200;

/** The states of one's own sessions as they began, with the present ones added where they are new. */
export function stated(
  states: Record<string, IStates>,
  status: IStatus,
  now: number
): Record<string, IStates> {
  const result: Record<string, IStates> = {};
  for (const { id, mine, state } of lookup(status).sessions) {
    if (mine) {
      const seen = states[id] ?? [];
      result[id] =
        seen[seen.length - 1]?.state === state
          ? seen
          : [...seen, { at: now, state }].slice(-MOST_STATES);
    }
  }
  return result;
}

/** Fraction of the device's memory in use; null where either figure was not read. */
export function occupancy(device: IDevice): number | null {
  return device.memory_used === null || !device.memory_total
    ? null
    : device.memory_used / device.memory_total;
}
