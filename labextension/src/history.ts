/** What happened to a session, and what was used: stretches of states, tables for export. Pure. */
import { IDecided, IHistory, ISession, IStates, SessionState } from './tokens';

/** A stretch of one state; `until` of the last is now. Milliseconds of Date.now. */
export interface IStretch {
  state: SessionState;
  from: number;
  until: number;
  /** Why it began; empty where that is not known. */
  text: string;
}

/** The state that a decision leads to; what is not here changes no state. */
const LEADS_TO: Record<string, SessionState> = {
  place: 'bound',
  unbind: 'bound',
  park: 'parked',
  resume: 'idle',
  refuse: 'waiting'
};

/**
 * A session's stretches of states, oldest first: what this page saw, and before that what the decisions tell.
 *
 * `decided` is newest first, as the server tells it.
 */
export function stretches(
  session: ISession,
  seen: IStates,
  decided: readonly IDecided[],
  now: number
): IStretch[] {
  const begins = [...decided]
    .reverse()
    .map(({ act, text, ago_s: ago }) => ({
      at: now - 1000 * ago,
      state: LEADS_TO[act ?? ''],
      text
    }))
    .filter(({ state, at }) => state !== undefined && at < (seen[0]?.at ?? Infinity));
  const said = (at: number): string =>
    decided.find(one => Math.abs(now - 1000 * one.ago_s - at) < 3000)?.text ?? '';
  const points = [...begins, ...seen.map(one => ({ ...one, text: said(one.at) }))];
  if (seen.length === 0) {
    const last = points[points.length - 1]?.at ?? now;
    points.push({ at: last, state: session.state, text: said(last) });
  }
  return points
    .map(({ state, at, text }, index) => ({
      state,
      from: at,
      until: points[index + 1]?.at ?? now,
      text
    }))
    .filter(({ from, until }) => until > from);
}

function cell(value: string | number | null): string {
  const text = value === null ? '' : String(value);
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** RFC 4180, with a line of names; what was not read is empty. */
export function csv(names: string[], rows: (string | number | null)[][]): string {
  return [names, ...rows].map(row => row.map(cell).join(',')).join('\r\n') + '\r\n';
}

export function seriesCsv(history: IHistory): string {
  return csv(
    ['at', 'share', 'utilization', 'gpu_s'],
    history.series.map(point => [
      new Date(1000 * point.at).toISOString(),
      point.share,
      point.utilization,
      point.gpu_s
    ])
  );
}

export function usageCsv(history: IHistory): string {
  const rows = (kind: string, sums: Record<string, number>): (string | number)[][] =>
    Object.entries(sums).map(([name, gpuSeconds]) => [kind, name, gpuSeconds]);
  return csv(
    ['kind', 'name', 'gpu_s'],
    [
      ...rows('day', history.by_day),
      ...rows('user', history.by_user),
      ...rows('group', history.by_group)
    ]
  );
}

/** The columns of a chart with a gap, `step` after its begin, where two instants are more than `most` seconds apart. */
export function gapped(
  at: readonly number[],
  lines: readonly (readonly (number | null)[])[],
  step: number,
  most: number
): [number[], ...(number | null)[][]] {
  const instants: number[] = [];
  const values = lines.map((): (number | null)[] => []);
  at.forEach((instant, row) => {
    const last = instants[instants.length - 1];
    if (last !== undefined && instant - last > most) {
      instants.push(last + step);
      values.forEach(line => line.push(null));
    }
    instants.push(instant);
    values.forEach((line, index) => line.push(lines[index][row]));
  });
  return [instants, ...values];
}

/** The series for a chart: seconds, share, utilisation. A gap stands where nothing was held for a step. */
export function columns(history: IHistory): [number[], ...(number | null)[][]] {
  const { series, step_s: step } = history;
  return gapped(
    series.map(point => point.at),
    [series.map(point => point.share), series.map(point => point.utilization)],
    step,
    1.5 * step
  );
}

/** Largest first. */
export function ranked(sums: Record<string, number>): [string, number][] {
  return Object.entries(sums).sort(([a, x], [b, y]) => y - x || a.localeCompare(b));
}
