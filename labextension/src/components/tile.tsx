/** One device: how busy, how full, who shares it, and what is wrong if something is. */
import { TranslationBundle } from '@jupyterlab/translation';

import { gigabytes, memory, modelName, occupied, percent, span, UNREAD } from '../format';
import { IPlace } from '../lookup';
import { IDevice, IServer } from '../tokens';
import { freeShare, isForeign, isOffered, mySessionsOn, unmanaged } from '../view';
import { Slices, Sparkline } from './bars';
import { useStatus, useUi } from './context';
import { opensMenu } from './keys';
import { Glyph, vars } from './marks';

const STALE_S = 15;
const AGED_S = 5;
const HOT = 0.95;

interface ITileProps {
  server: IServer;
  device: IDevice;
  /** Inside a line of the tree, which is what takes the focus. */
  inTree?: boolean;
}

export function Tile({ server, device, inTree = false }: ITileProps): JSX.Element {
  const { trans, snapshot, openDeviceMenu, drain } = useUi();
  const status = useStatus();
  const mine = mySessionsOn(status, device.uuid).length > 0;
  const model = modelName(device.model);
  const trouble = troubleOf(server, device, trans);
  const free = trouble ? trouble.word : freeWord(server, device, trans);
  const trace = snapshot.traces[device.uuid];
  const full = occupied(device.memory_used, device.memory_total);
  const age = device.age_s ?? 0;
  const stale = snapshot.kind === 'gone' || age > STALE_S;
  return (
    <div
      className="jp-GPUShare-tile"
      role={inTree ? undefined : 'listitem'}
      data-device={device.uuid}
      data-state={device.state}
      data-mine={mine || undefined}
      data-trouble={trouble?.look}
      data-stale={stale || undefined}
      data-stop={inTree ? undefined : true}
      tabIndex={inTree ? undefined : -1}
      aria-label={inTree ? undefined : [`GPU ${device.index}`, model, free].join(', ')}
      onKeyDown={event => {
        if (opensMenu(event) && !inTree && openDeviceMenu) {
          event.preventDefault();
          openDeviceMenu(device.uuid, event.currentTarget);
        }
      }}
      onContextMenu={event => {
        if (openDeviceMenu) {
          event.preventDefault();
          event.stopPropagation();
          openDeviceMenu(device.uuid, event.currentTarget);
        }
      }}
      title={age > AGED_S ? trans.__('Read %1 ago', span(age, trans)) : undefined}
    >
      <div className="jp-GPUShare-tileHead">
        {trouble && <Glyph look={trouble.look} label={trouble.word} />}
        <b title={device.uuid}>GPU {device.index}</b>
        <span className="jp-GPUShare-model" title={device.model}>
          {model}
        </span>
        <span className="jp-GPUShare-free">{free}</span>
        {drain && status.admin && (
          <DrainButton place={{ server, device }} drain={drain} inTree={inTree} />
        )}
      </div>
      {!trouble && (
        <div className="jp-GPUShare-pair">
          <Reading
            name={trans.__('Busy')}
            value={percent(device.utilization)}
            points={trace?.busy}
            mine={mine}
          />
          <Reading
            name={trans.__('Memory')}
            value={full}
            unit=" GiB"
            points={trace?.memory}
            mine={mine}
          />
        </div>
      )}
      <Slices device={device} label={free} />
      {trouble?.text && <p className="jp-GPUShare-trouble">{trouble.text}</p>}
      <Leftovers device={device} />
      <div className="jp-GPUShare-environment">
        <Limited
          value={device.temperature_c}
          limit={device.temperature_limit_c}
          unit=" °C"
          name={trans.__('Temperature')}
          hot
        />
        <Limited
          value={device.power_w}
          limit={device.power_limit_w}
          unit=" W"
          name={trans.__('Power')}
        />
        <Mode device={device} />
      </div>
      <div className="jp-GPUShare-environment jp-GPUShare-traffic">
        <Traffic name="PCIe" received={device.pcie_rx_gb_s} sent={device.pcie_tx_gb_s} />
        <Traffic name="NVLink" received={device.nvlink_rx_gb_s} sent={device.nvlink_tx_gb_s} />
      </div>
    </div>
  );
}

interface IDrainProps {
  place: IPlace;
  drain(place: IPlace, drained: boolean): void;
  inTree: boolean;
}

function DrainButton({ place, drain, inTree }: IDrainProps): JSX.Element {
  const { trans, snapshot } = useUi();
  const { server, device } = place;
  const drained = device.state === 'draining';
  const word = drained ? trans.__('Offer again') : trans.__('Drain…');
  return (
    <button
      type="button"
      className="jp-GPUShare-button"
      aria-label={`${word} GPU ${device.index}, ${server.name}`}
      tabIndex={inTree ? -1 : undefined}
      disabled={snapshot.kind === 'gone'}
      onClick={() => drain(place, !drained)}
    >
      {word}
    </button>
  );
}

interface IReadingProps {
  name: string;
  value: string;
  unit?: string;
  points: (number | null)[] | undefined;
  mine: boolean;
}

function Reading({ name, value, unit = '', points = [], mine }: IReadingProps): JSX.Element {
  const { trans } = useUi();
  return (
    <div>
      <div className="jp-GPUShare-label">
        <span>{name}</span>
        <span title={value.startsWith(UNREAD) ? trans.__('not read') : undefined}>
          {value}
          {unit && <span className="jp-GPUShare-unit">{unit}</span>}
        </span>
      </div>
      <Sparkline
        points={points}
        mine={mine}
        label={trans.__('%1 over the last two minutes, now %2', name, value + unit)}
      />
    </div>
  );
}

interface ILimitedProps {
  value: number | null;
  limit: number | null;
  unit: string;
  name: string;
  /** Near its limit it is trouble: a hot device slows down, one that draws all its power does not. */
  hot?: boolean;
}

/** A value against its limit; the meter only where both were read. */
function Limited({ value, limit, unit, name, hot }: ILimitedProps): JSX.Element {
  const { trans } = useUi();
  const part = value === null || !limit ? null : Math.min(1, value / limit);
  const text = value === null ? UNREAD + unit : `${Math.round(value)}${unit}`;
  const title =
    value === null
      ? trans.__('%1: not read', name)
      : limit === null
        ? name
        : trans.__('%1, limit %2', name, `${Math.round(limit)}${unit}`);
  return (
    <span title={title} data-hot={(hot && part !== null && part >= HOT) || undefined}>
      <bdi>{text}</bdi>
      {part !== null && (
        <span className="jp-GPUShare-meter" aria-hidden="true">
          <span style={vars({ now: part })} />
        </span>
      )}
    </span>
  );
}

interface ITrafficProps {
  name: string;
  received: number | null;
  sent: number | null;
}

/** What goes over a link each way; nothing where there is no such link, or it cannot be read. */
function Traffic({ name, received, sent }: ITrafficProps): JSX.Element | null {
  const { trans } = useUi();
  if (received === null && sent === null) {
    return null;
  }
  const [into, out] = [gigabytes(received), gigabytes(sent)];
  return (
    <span
      data-link={name}
      title={trans.__('%1: %2 GB/s to the GPU, %3 GB/s from it', name, into, out)}
    >
      {name} <bdi>{`↓ ${into} ↑ ${out} GB/s`}</bdi>
    </span>
  );
}

function Mode({ device }: { device: IDevice }): JSX.Element {
  const { trans } = useUi();
  const [word, meaning] = {
    timeslice: [
      trans.__('time-sliced'),
      trans.__('Shared by time. A share is a target, not a wall.')
    ],
    mps: [
      trans.__('MPS'),
      device.enforced === 'target'
        ? trans.__('Something runs beside the MPS server: a share is a target.')
        : trans.__('A share is a ceiling, for each process.')
    ],
    mig: [trans.__('MIG'), trans.__('A slice of its own.')],
    exclusive: [
      trans.__('exclusive'),
      device.enforced === 'target'
        ? trans.__('One kernel at a time; other programs are not shut out.')
        : trans.__('All yours while you hold it.')
    ]
  }[device.sharing];
  return (
    <span
      className="jp-GPUShare-mode"
      title={`${meaning} ${trans.__('A mask hides devices; it does not isolate.')}`}
    >
      {word}
    </span>
  );
}

/** What of one's own ended notebooks still holds this device can be stopped by its owner. */
function Leftovers({ device }: { device: IDevice }): JSX.Element | null {
  const { trans, act } = useUi();
  const own = device.others.filter(other => other.why === 'leftover' && other.session);
  return own.length === 0 ? null : (
    <div className="jp-GPUShare-actions">
      {own.map(other => (
        <button
          key={other.session}
          type="button"
          className="jp-GPUShare-button"
          onClick={() => other.session && void act('stop', other.session)}
        >
          {trans.__('Stop what is left of yours…')}
        </button>
      ))}
    </div>
  );
}

interface ITrouble {
  look: 'warned' | 'lost';
  word: string;
  text: string;
}

export function troubleOf(
  server: IServer,
  device: IDevice,
  trans: TranslationBundle
): ITrouble | null {
  const reason = device.reason ?? '';
  if (device.state === 'lost') {
    return { look: 'lost', word: trans.__('stopped answering'), text: reason };
  }
  if (device.state === 'failing' || device.state === 'draining') {
    const word = device.state === 'failing' ? trans.__('failing') : trans.__('draining');
    return { look: 'warned', word, text: reason };
  }
  if (isForeign(device)) {
    const size = memory(unmanaged(device));
    const left = device.others.some(other => other.why === 'leftover');
    const text = left
      ? trans.__('%1 are left by an ended notebook.', size)
      : trans.__('%1 belong to no notebook. An admin can free it.', size);
    return { look: 'warned', word: trans.__('not offered'), text };
  }
  if (!isOffered(server, device)) {
    return { look: 'warned', word: trans.__('not offered'), text: reason };
  }
  return null;
}

export function freeWord(server: IServer, device: IDevice, trans: TranslationBundle): string {
  const free = freeShare(server, device);
  if (free === null) {
    return UNREAD;
  }
  return free < 0.005
    ? trans.__('full')
    : free > 0.995
      ? trans.__('free')
      : trans.__('%1 free', percent(free));
}
