/** Bars and lines: share, place in line, slices of a device, two minutes of a reading. */
import { percent } from '../format';
import { progress } from '../states';
import { IDevice, ISession, IStatus } from '../tokens';
import { isForeign, meanOf, mySessionsOn, othersOn, restingOn, unmanaged } from '../view';
import { useStatus, useUi } from './context';
import { vars } from './marks';

/** Fill: share now; tick: guarantee; track: limit. Hatched while memory moves, or when the data is old. */
export function ShareBar({
  session,
  small = false
}: {
  session: ISession;
  small?: boolean;
}): JSX.Element {
  const { trans, snapshot } = useUi();
  const moving = session.state === 'resuming' || session.state === 'parking';
  const mean = meanOf(session, part => part.share) ?? 0;
  const now = moving ? (progress(session) ?? 0) : mean;
  const text = moving
    ? percent(now)
    : trans.__(
        '%1, guaranteed %2, up to %3',
        percent(now),
        percent(session.guarantee),
        percent(session.limit)
      );
  const name = small ? 'jp-GPUShare-mini' : 'jp-GPUShare-share';
  const shares = moving ? [now] : session.devices.map(part => part.share);
  return (
    <span
      className={shares.length > 1 ? `${name} jp-GPUShare-multi` : name}
      role="meter"
      aria-label={moving ? trans.__('Memory moved') : trans.__('Share of the GPU')}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(100 * now)}
      aria-valuetext={text}
      title={text}
      data-others={!session.mine || undefined}
      data-hatched={moving || snapshot.kind === 'gone' || undefined}
    >
      {(shares.length > 0 ? shares : [0]).map((share, place) => (
        <span
          key={place}
          className="jp-GPUShare-bar"
          style={vars({
            now: share,
            guarantee: session.guarantee,
            limit: moving ? 1 : session.limit
          })}
        >
          <span className="jp-GPUShare-whole" />
          <span className="jp-GPUShare-limit" />
          <span className="jp-GPUShare-now" />
          {!moving && session.guarantee > 0 && session.guarantee < 1 && (
            <span className="jp-GPUShare-tick" />
          )}
        </span>
      ))}
    </span>
  );
}

const MOST_SQUARES = 12;

/** The line you stand in: squares ahead, you, squares behind. */
export function QueueLine({ session }: { session: ISession }): JSX.Element {
  const { trans } = useUi();
  const status = useStatus();
  const place = session.queue_position ?? status.queue.length;
  const ahead = Math.max(0, place - 1);
  const behind = Math.max(0, status.queue.length - place);
  const text = trans.__('%1 ahead of you, %2 behind', ahead, behind);
  if (ahead + behind + 1 > MOST_SQUARES) {
    return <span className="jp-GPUShare-queue">{text}</span>;
  }
  const squares = [
    ...Array<string>(ahead).fill('ahead'),
    'me',
    ...Array<string>(behind).fill('behind')
  ];
  return (
    <span className="jp-GPUShare-queue" role="img" aria-label={text} title={text}>
      {squares.map((kind, index) => (
        <span key={index} data-kind={kind} />
      ))}
    </span>
  );
}

interface ISlice {
  kind: 'mine' | 'others' | 'busy' | 'held' | 'foreign' | 'out';
  share: number;
}

/**
 * Who has how much of a device: yours first, others in order of size, then what belongs to no notebook.
 *
 * `byUse`: what computes and what is held idle instead.
 */
export function slices(device: IDevice, status: IStatus, byUse = false): ISlice[] {
  const bytes = isForeign(device) ? unmanaged(device) : null;
  const foreign: ISlice[] =
    bytes && device.memory_total ? [{ kind: 'foreign', share: bytes / device.memory_total }] : [];
  if (byUse) {
    const held = Math.min(restingOn(status, device.uuid), device.allocated ?? 0);
    const used: ISlice[] = [
      { kind: 'busy', share: (device.allocated ?? 0) - held },
      { kind: 'held', share: held }
    ];
    return [...used.filter(({ share }) => share > 0.001), ...foreign];
  }
  const mine = mySessionsOn(status, device.uuid)
    .map(session => session.devices.find(part => part.uuid === device.uuid)?.share ?? 0)
    .filter(share => share > 0)
    .map((share): ISlice => ({ kind: 'mine', share }));
  const others = othersOn(status, device)
    .sort((a, b) => b - a)
    .map((share): ISlice => ({ kind: 'others', share }));
  return [...mine, ...others, ...foreign];
}

export function Slices({ device, label }: { device: IDevice; label: string }): JSX.Element {
  const status = useStatus();
  const { byUse = false } = useUi();
  return (
    <div
      className="jp-GPUShare-slices"
      role="img"
      aria-label={label}
      data-crossed={device.state === 'lost' || undefined}
    >
      {slices(device, status, byUse).map((slice, index) => (
        <span key={index} data-kind={slice.kind} style={vars({ share: slice.share })} />
      ))}
    </div>
  );
}

const WIDTH = 100;
const HEIGHT = 20;
const POINTS = 60;

/** Two minutes on an axis from 0 to 100%; a gap where nothing was read. */
export function Sparkline(props: {
  points: (number | null)[];
  label: string;
  mine: boolean;
}): JSX.Element {
  const { points, label, mine } = props;
  const runs = unbroken(points);
  return (
    <svg
      className="jp-GPUShare-spark"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
      data-mine={mine || undefined}
    >
      <path className="jp-GPUShare-base" d={`M0 ${HEIGHT - 0.5}H${WIDTH}`} />
      {runs.map(({ line, from, to }, index) => (
        <g key={index}>
          <path className="jp-GPUShare-area" d={`${line}L${to} ${HEIGHT}L${from} ${HEIGHT}z`} />
          <path className="jp-GPUShare-line" d={line} />
        </g>
      ))}
    </svg>
  );
}

/** The runs of points that were read, as paths; the newest point stands at the right edge. */
function unbroken(points: (number | null)[]): { line: string; from: string; to: string }[] {
  const runs: { line: string; from: string; to: string }[] = [];
  let run: string[] = [];
  let from = '';
  let to = '';
  const close = (): void => {
    if (run.length > 0) {
      runs.push({ line: `M${run.join('L')}`, from, to });
    }
    run = [];
  };
  points.forEach((value, index) => {
    if (value === null) {
      return close();
    }
    to = (WIDTH - ((points.length - 1 - index) * WIDTH) / (POINTS - 1)).toFixed(1);
    from = run.length === 0 ? to : from;
    run.push(`${to} ${((1 - Math.min(1, Math.max(0, value))) * (HEIGHT - 2) + 1).toFixed(1)}`);
  });
  close();
  return runs;
}
