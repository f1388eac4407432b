/**
 * The words this extension speaks: what the server tells (one to one), and the model everything here shows.
 *
 * Sizes are bytes, shares and utilisation fractions 0..1, durations seconds. `null` is "not read", never 0.
 */
import { Token } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { ISignal } from '@lumino/signaling';

import { components } from './openapi';

type Schemas = components['schemas'];

export type SessionState = Schemas['SessionView']['state'];
export type DegradedCode = Schemas['Finding']['code'];

/** What is on a device and belongs to no notebook here. `pid` and `owner` only with the admin scope. */
export type IOther = Schemas['OtherProcess'];
/** `allocated` null: not known. */
export type IDevice = Omit<Schemas['DeviceView'], 'allocated'> & { allocated: number | null };
/** A session's part of one device. */
export type IPart = Schemas['SessionDevice'];
export type INext = Schemas['Next'];

/** What is not said is as the server has it by default. */
export type IDemand = Pick<Schemas['Demand'], 'gpus'> &
  Partial<Omit<Schemas['Demand'], 'constraints'>> & {
    constraints?: Partial<Schemas['Constraints']>;
  };

/** The whole view, servers, devices and sessions as maps, as the event stream sends it. */
export type IStatus = Omit<Schemas['Status'], 'servers' | 'sessions'> & {
  servers: Record<string, IServer>;
  sessions: Record<string, ISession>;
};
export type IServer = Omit<Schemas['ServerView'], 'devices'> & {
  devices: Record<string, IDevice>;
};
export type ISession = Omit<Schemas['SessionView'], 'demand'> & { demand: IDemand };

/** The same as `GET status` answers: lists instead of maps. */
export type IStatusReply = Schemas['Status'];

/** `value` null: what it stands on was not read. */
export type ITerm = Omit<Schemas['Term'], 'value'> & { value: number | null };

/** Why a session is where it is. `fitness` null: this device was not possible. */
export interface IWhy {
  terms: ITerm[];
  alternatives: (Omit<Schemas['Alternative'], 'fitness'> & { fitness: number | null })[];
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

/** The past, summed by the ledger: GPU-seconds, seconds since 1970; means over what was held in each step. */
export type IHistory = Schemas['History'];
/** The last hour of a device, or of several together: columns, oldest first; null: not read. */
export type IReadings = Schemas['Readings'];
/** The whole cluster some time ago: sessions in line, devices computing and held idle, devices out of service. */
export type IFigure = Schemas['Figure'];

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
