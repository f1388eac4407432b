/** Where the pressure is, who waits and what is wasted: what the hub's page makes of a status. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

import { clock, devices as amount, memory, percent, shortModel, span, timeOfDay } from '../format';
import { lookup } from '../lookup';
import { IFigure, ISession, IStatus } from '../tokens';
import { freeShare, IMoment, isOffered, isTroubled, running, totalShare } from '../view';

export interface IPressure {
  /** Devices in the pool. */
  devices: number;
  /** Devices' worth of shares whose sessions compute, and of those whose sessions rest. */
  computing: number;
  idle: number;
  /** Devices that take no sessions now. */
  out: number;
  waiting: number;
}

/** Of everybody's sessions, so only with the admin scope. */
export function pressure(status: IStatus): IPressure {
  const { sessions, places } = lookup(status);
  const held = (state: ISession['state']): number =>
    sessions.reduce((sum, one) => sum + (one.state === state ? totalShare(one) : 0), 0);
  const pool = [...places.values()].filter(({ device }) => device.in_pool);
  return {
    devices: status.summary.devices,
    computing: held('active'),
    idle: held('idle'),
    out: pool.filter(({ server, device }) => !isOffered(server, device)).length,
    waiting: status.queue.length
  };
}

/** Mean use of the devices that could be read; null: none could. */
export function meanUse(status: IStatus): number | null {
  const read = [...lookup(status).places.values()]
    .map(({ device }) => device.utilization)
    .filter(value => value !== null);
  return read.length > 0 ? read.reduce((sum, value) => sum + value, 0) / read.length : null;
}

/** Those that hold a device and rest, longest first. */
export function resting(moment: IMoment): ISession[] {
  const idle = (session: ISession): number => running(session, 'idle_s', moment) ?? 0;
  return lookup(moment.status)
    .sessions.filter(session => session.state === 'idle' && totalShare(session) > 0)
    .sort((a, b) => idle(b) - idle(a) || a.id.localeCompare(b.id));
}

/** Those in line that this person may know, in the order they will be served. */
export function inLine(status: IStatus): ISession[] {
  return lookup(status)
    .sessions.filter(session => session.queue_position !== null)
    .sort((a, b) => (a.queue_position ?? 0) - (b.queue_position ?? 0));
}

/** "25% of A100", "2 × A100, 60 GiB": what a session asks for. */
export function asked({ demand }: ISession, trans: TranslationBundle): string {
  const { gpus, exclusive, constraints } = demand;
  const model = constraints?.model || trans.__('any');
  const amountOf =
    gpus < 1
      ? trans.__('%1 of %2', percent(gpus), model)
      : trans.__('%1 × %2', amount(gpus), model);
  return [
    amountOf,
    constraints?.server ? trans.__('on %1', constraints.server) : '',
    demand.memory ? memory(demand.memory) : '',
    exclusive ? trans.__('exclusive') : ''
  ]
    .filter(Boolean)
    .join(', ');
}

/** Why it is not served now, from what anybody can see. */
export function whyItWaits(session: ISession, status: IStatus, trans: TranslationBundle): string {
  const { gpus, exclusive, constraints, memory: bytes } = session.demand;
  const { model, server: name } = constraints ?? {};
  const fits = [...lookup(status).places.values()].filter(
    ({ server, device }) =>
      isOffered(server, device) &&
      (!name || server.name === name) &&
      (!model || device.model.toLowerCase().includes(model.toLowerCase()))
  );
  const kind = model ? shortModel(model) : trans.__('GPU');
  if (fits.length === 0) {
    return trans.__('no %1 is in service', kind);
  }
  const free = fits.map(({ server, device }) => freeShare(server, device) ?? 0);
  const need = exclusive ? 1 : Math.min(gpus, 1);
  const enough = free.filter(part => part >= need - 0.005).length;
  if (enough === 0) {
    return need === 1
      ? trans.__('no %1 is free as a whole', kind)
      : trans.__('no %1 has %2 free', kind, percent(need));
  }
  if (enough < Math.ceil(gpus)) {
    return trans.__('only %1 of %2 are free', enough, Math.ceil(gpus));
  }
  const room = Math.max(
    ...fits.map(({ device }) => (device.memory_total ?? 0) - (device.memory_used ?? 0))
  );
  if (bytes && bytes > room) {
    return trans.__('%1 are free nowhere', memory(bytes));
  }
  const ahead = (session.queue_position ?? 1) - 1;
  return ahead > 0 ? trans.__('behind %1 with a higher claim', ahead) : trans.__('is served next');
}

/** What keeps a device with a session that rests. */
export function whatHoldsIt(session: ISession, moment: IMoment, trans: TranslationBundle): string {
  const kept = running(session, 'pinned_until_s', moment);
  if (kept !== null) {
    return trans.__('kept until %1', timeOfDay(moment.now + 1000 * kept));
  }
  const left = running(session, 'reclaim_in_s', moment);
  if (left !== null) {
    return left <= moment.status.warn_before_s
      ? trans.__('parked in %1', clock(left))
      : trans.__('protected for %1', span(left, trans));
  }
  return trans.__('nobody needs it');
}

/** Devices that take no sessions, by what is wrong with them. */
export function outBy(status: IStatus, word: (uuid: string) => string): [string, number][] {
  const counts = new Map<string, number>();
  for (const [uuid, { server, device }] of lookup(status).places) {
    if (device.in_pool && (isTroubled({ server, device }) || !isOffered(server, device))) {
      counts.set(word(uuid), (counts.get(word(uuid)) ?? 0) + 1);
    }
  }
  return [...counts].sort((a, b) => b[1] - a[1]);
}

/** What those in line ask for, by model: "A100" → 4, "" → 2 for any. */
export function wantedBy(sessions: readonly ISession[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const { demand } of sessions) {
    const model = demand.constraints?.model ?? '';
    counts.set(model, (counts.get(model) ?? 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1]);
}

const POINTS = 60;
const LONGEST_S = 6 * 3600;
const LEAST_S = 600;

export interface ITrend {
  points: (number | null)[];
  /** How far back the first point is. */
  span_s: number;
}

/** A figure over the last hours as sixty points from 0 to 1 (1: `most`); a gap where nothing was noted. */
export function trend(
  figures: readonly IFigure[],
  name: keyof Omit<IFigure, 'ago_s'>,
  most: number
): ITrend {
  const span_s = Math.min(LONGEST_S, Math.max(LEAST_S, figures[0]?.ago_s ?? 0));
  const step = span_s / (POINTS - 1);
  const reach = Math.max(step, 120) / 2 + 1;
  const points = Array.from({ length: POINTS }, (_, index) => {
    const ago = span_s - index * step;
    const near = figures.filter(one => Math.abs(one.ago_s - ago) <= reach);
    return near.length === 0
      ? null
      : Math.min(1, near.reduce((sum, one) => sum + one[name], 0) / near.length / most);
  });
  return { points, span_s };
}
