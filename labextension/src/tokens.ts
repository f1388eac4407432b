/**
 * The words this extension speaks: what the server tells (one to one), and the model everything here shows.
 *
 * Sizes are bytes, shares and utilisation fractions 0..1, durations seconds. `null` is "not read", never 0.
 */
import { Token } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { ISignal } from '@lumino/signaling';

export type SessionState =
  | 'waiting'
  | 'bound'
  | 'active'
  | 'idle'
  | 'parking'
  | 'parked'
  | 'resuming'
  | 'none'
  | 'lost'
  | 'dead';
export type DeviceState = 'healthy' | 'lost' | 'failing' | 'draining' | 'unknown';
export type Sharing = 'timeslice' | 'mps' | 'mig' | 'exclusive';
export type DegradedCode = 'broker' | 'ledger' | 'bus' | 'nvml' | 'disk';

/** What is on a device and belongs to no notebook here. `pid` and `owner` only with the admin scope. */
export interface IOther {
  pid: number | null;
  owner: string | null;
  memory: number | null;
  why: 'leftover' | 'foreign' | 'off-lease';
  /** Of one's own leftovers, to stop them. */
  session?: string | null;
}

export interface IDevice {
  uuid: string;
  index: number;
  model: string;
  state: DeviceState;
  reason?: string | null;
  sharing: Sharing;
  enforced: 'target' | 'ceiling' | 'partition';
  in_pool: boolean;
  memory_total: number | null;
  memory_used: number | null;
  memory_unaccounted: number | null;
  utilization: number | null;
  memory_utilization: number | null;
  temperature_c: number | null;
  temperature_limit_c: number | null;
  power_w: number | null;
  power_limit_w: number | null;
  age_s: number | null;
  allocated: number | null;
  other_shares: number[];
  others: IOther[];
}

export interface IServer {
  name: string;
  state: 'up' | 'down' | 'unknown';
  age_s: number | null;
  devices: Record<string, IDevice>;
}

export interface IDemand {
  gpus: number;
  gpus_max?: number | null;
  exclusive?: boolean;
  memory?: number | null;
  duration_s?: number | null;
  cpus?: number | null;
  host_memory?: number | null;
  constraints?: { model?: string | null; server?: string | null };
  near?: string[];
  kind?: string | null;
  horizon?: string | null;
}

/** A session's part of one device. */
export interface IPart {
  uuid: string;
  share: number;
  memory_used: number | null;
  utilization: number | null;
}

export interface INext {
  code: string;
  text: string;
  in_s: number | null;
}

export interface ISession {
  id: string;
  user: string;
  mine: boolean;
  server: string | null;
  label: string;
  path: string | null;
  kind: string;
  horizon: string;
  state: SessionState;
  devices: IPart[];
  guarantee: number;
  limit: number;
  idle_s: number | null;
  reclaim_in_s: number | null;
  pinned_until_s: number | null;
  queue_position: number | null;
  eta_s: number | null;
  waiting_s: number | null;
  demand: IDemand;
  parked_bytes: number | null;
  moved_bytes: number | null;
  next: INext | null;
  charged_gpu_s: number | null;
  message: string;
  /** Its share comes out of idle holders' guarantees. */
  borrowed?: boolean;
}

/** The whole view, servers, devices and sessions as maps, as the event stream sends it. */
export interface IStatus {
  version: string;
  rev: number;
  mode: 'embedded' | 'socket' | 'hub';
  simulated: boolean;
  user: string;
  admin: boolean;
  degraded: { code: DegradedCode; message: string }[];
  servers: Record<string, IServer>;
  sessions: Record<string, ISession>;
  queue: (string | null)[];
  warn_before_s: number;
  stop_warn_s: number;
  summary: { devices: number; free: number | null; waiting: number };
}

/** The same as `GET status` answers: lists instead of maps. */
export type IStatusReply = Omit<IStatus, 'servers' | 'sessions'> & {
  servers: (Omit<IServer, 'devices'> & { devices: IDevice[] })[];
  sessions: ISession[];
};

export interface ITerm {
  name: string;
  value: number | null;
  weight: number;
  text: string;
}

/** Why a session is where it is. `fitness` null: this device was not possible. */
export interface IWhy {
  device?: string | null;
  fitness?: number | null;
  text?: string;
  terms: ITerm[];
  alternatives: { device: string; fitness: number | null; decisive: string; text: string }[];
  /** What was decided for it, newest first. */
  decided?: IDecided[];
}

export interface IDecided {
  act?: string;
  /** The reason's short name; `text` says it. */
  why?: string;
  text: string;
  ago_s: number;
}

/** The past, summed by the ledger; seconds since 1970. */
export interface IHistory {
  since: number;
  until: number;
  step_s: number;
  /** Means over what was held in each step; null: nothing was held, or it could not be read. */
  series: { at: number; share: number | null; utilization: number | null; gpu_s: number }[];
  /** GPU-seconds. */
  by_user: Record<string, number>;
  by_group: Record<string, number>;
  by_day: Record<string, number>;
}

/** The states of a session that this page saw begin, oldest first; ms of Date.now. */
export type IStates = readonly { at: number; state: SessionState }[];

/** One check of the doctor. `missing`: not there and need not be; `broken`: should work and does not. */
export interface IFinding {
  check: string;
  state: 'ok' | 'warning' | 'missing' | 'broken';
  finding: string;
  cause: string | null;
  fix: string | null;
}

/** The durations of a session that run on between two messages. */
export const DURATIONS = [
  'idle_s',
  'reclaim_in_s',
  'pinned_until_s',
  'eta_s',
  'waiting_s'
] as const;
export type Duration = (typeof DURATIONS)[number];

/** For each session and duration: when (ms of Date.now) its value was last heard. */
export type Heard = Record<string, Partial<Record<Duration, number>>>;

/** Two minutes of a device, oldest first, one point each two seconds; null: not read. */
export interface ITrace {
  busy: (number | null)[];
  memory: (number | null)[];
}

/**
 * What is known now, and how well.
 *
 * `loading`: nothing yet. `ready`: live. `gone`: the service stopped answering; `status` is the last that was heard.
 * `absent`: this server offers no GPU sharing; nothing is tried again.
 */
export interface ISnapshot {
  kind: 'loading' | 'ready' | 'gone' | 'absent';
  status: IStatus | null;
  heard: Heard;
  traces: Record<string, ITrace>;
  /** By session, of one's own. */
  states: Record<string, IStates>;
  /** When `status` was last confirmed, ms of Date.now; null before the first. */
  at: number | null;
  /** When the next try starts, ms of Date.now; null unless `gone`. */
  nextTry: number | null;
}

/** Keeps the snapshot up to date while the page is visible; shared by all that show it. */
export interface IGPUShareModel extends IDisposable {
  readonly snapshot: ISnapshot;
  /** Seconds between two looks where the server cannot push. */
  pollSeconds: number;
  /** At most twice a second. */
  readonly changed: ISignal<IGPUShareModel, ISnapshot>;
  /** Ends the present wait and tries at once. */
  retry(): void;
}

export const IGPUShareModel = new Token<IGPUShareModel>(
  'jupyter-gpushare:IGPUShareModel',
  'Live state of the shared GPUs: sessions, devices, servers and the queue.'
);
