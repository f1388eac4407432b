/** GPUs over the last hour: how busy, how full, temperature, power, and what goes over their links each way. */
import { useMemo, useRef } from 'react';

import { gigabytes, percent, UNREAD } from '../format';
import { serversInOrder } from '../order';
import {
  Columns,
  columnsOf,
  ILimits,
  IScope,
  limitsOf,
  Reading,
  readingsCsv,
  wasRead
} from '../readings';
import { IReadings } from '../tokens';
import { place } from '../view';
import { Chart, Picture } from './chart';
import { useStatus, useUi } from './context';
import { fileOf, SaveCsv, SavePng } from './exports';

/** Readings and when they arrived, ms of Date.now. */
export interface IArrived {
  readings: IReadings;
  at: number;
}

interface IGpusProps {
  arrived: IArrived | null;
  scope: IScope;
  onScope(scope: IScope): void;
  /** Below a heading of the page's. */
  within?: boolean;
}

const HEIGHT_PX = 140;

const KILOWATTS = 10000; // from here on, W
const watts = (value: number | null): string =>
  value === null
    ? UNREAD
    : value < KILOWATTS
      ? `${Math.round(value)} W`
      : `${Math.round(value / 1000)} kW`;
const degrees = (value: number | null): string =>
  value === null ? UNREAD : `${Math.round(value)} °C`;
const rate = (value: number | null): string =>
  value === null ? UNREAD : `${gigabytes(value)} GB/s`;

export function Gpus({ arrived, scope, onScope, within = false }: IGpusProps): JSX.Element {
  const { trans } = useUi();
  const status = useStatus();
  const limits = limitsOf(status, scope);
  const device = 'device' in scope ? (place(status, scope.device)?.device ?? null) : null;
  const name =
    device !== null
      ? `GPU ${device.index}`
      : 'server' in scope
        ? scope.server
        : trans.__('All GPUs');
  return (
    <>
      <Scopes scope={scope} onScope={onScope} />
      {arrived === null ? (
        <p className="jp-GPUShare-text">{trans.__('Asking the GPU service…')}</p>
      ) : arrived.readings.devices === 0 ? (
        <p className="jp-GPUShare-text">{trans.__('Nothing was read yet.')}</p>
      ) : (
        <Charts arrived={arrived} limits={limits} name={name} part={within ? 'h3' : 'h2'} />
      )}
    </>
  );
}

/** This GPU, its server, all: as far as they differ. */
function Scopes({ scope, onScope }: Pick<IGpusProps, 'scope' | 'onScope'>): JSX.Element | null {
  const { trans } = useUi();
  const status = useStatus();
  const names = serversInOrder(status).map(server => server.name);
  const found = 'device' in scope ? place(status, scope.device) : null;
  const server = found?.server.name ?? ('server' in scope ? scope.server : null);
  const of = server ?? (names.length === 1 ? names[0] : '');
  const devices = Object.values(status.servers[of]?.devices ?? {}).sort(
    (a, b) => a.index - b.index
  );
  if (names.length < 2 && devices.length < 2) {
    return null;
  }
  return (
    <div className="jp-GPUShare-filters" role="group" aria-label={trans.__('Which GPUs')}>
      {names.length > 1 && (
        <select
          className="jp-GPUShare-filter"
          aria-label={trans.__('Server')}
          value={server ?? ''}
          onChange={({ target }) => onScope(target.value ? { server: target.value } : {})}
        >
          <option value="">{trans.__('All GPUs')}</option>
          {names.map(name => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      )}
      {devices.length > 1 &&
        [null, ...devices].map(device => (
          <button
            key={device?.uuid ?? ''}
            type="button"
            className="jp-GPUShare-filter"
            aria-pressed={found?.device.uuid === device?.uuid}
            onClick={() => onScope(device ? { device: device.uuid } : { server: of })}
          >
            {device ? `GPU ${device.index}` : trans.__('All')}
          </button>
        ))}
    </div>
  );
}

type Link = 'pcie' | 'nvlink';

const LINKS: [string, Link][] = [
  ['PCIe', 'pcie'],
  ['NVLink', 'nvlink']
];

const ways = (link: Link): Reading[] => [`${link}_rx_gb_s`, `${link}_tx_gb_s`];

interface IChartsProps {
  arrived: IArrived;
  limits: ILimits;
  name: string;
  part: 'h2' | 'h3';
}

function Charts({ arrived, limits, name, part }: IChartsProps): JSX.Element {
  const { trans } = useUi();
  const { readings, at } = arrived;
  const file = fileOf(name);
  const { memory, temperature, power } = limits;
  const columns = useMemo(() => {
    const of = (...fields: Reading[]): Columns => columnsOf(readings, fields, at);
    const [times, busy, used] = of('utilization', 'memory_used');
    const full = used.map(bytes => (bytes === null || !memory ? null : bytes / memory));
    return {
      use: [times, busy, full] as Columns,
      temperature: of('temperature_c'),
      power: of('power_w'),
      pcie: of(...ways('pcie')),
      nvlink: of(...ways('nvlink'))
    };
  }, [readings, at, memory]);
  const several = readings.devices > 1;
  return (
    <>
      <Plot
        part={part}
        title={trans.__('Busy and memory')}
        columns={columns.use}
        names={[trans.__('Busy'), trans.__('Memory')]}
        format={percent}
        top={1}
        file={`${file}-use`}
      />
      {wasRead(readings, ['temperature_c']) && (
        <Plot
          part={part}
          title={several ? trans.__('Temperature of the hottest') : trans.__('Temperature')}
          columns={columns.temperature}
          names={[trans.__('Temperature')]}
          format={degrees}
          top={temperature}
          file={`${file}-temperature`}
        />
      )}
      {wasRead(readings, ['power_w']) && (
        <Plot
          part={part}
          title={trans.__('Power')}
          columns={columns.power}
          names={[trans.__('Power')]}
          format={watts}
          top={power}
          file={`${file}-power`}
        />
      )}
      {LINKS.map(
        ([title, link]) =>
          wasRead(readings, ways(link)) && (
            <Plot
              key={title}
              part={part}
              title={title}
              columns={columns[link]}
              names={[trans.__('to the GPU'), trans.__('from the GPU')]}
              format={rate}
              top={null}
              file={`${file}-${link}`}
            />
          )
      )}
      <div className="jp-GPUShare-actions">
        <SaveCsv file={file} text={() => readingsCsv(readings, at)} />
      </div>
      <p className="jp-GPUShare-text">
        {trans.__('The last hour, read every five seconds. It begins anew with the GPU service.')}
      </p>
    </>
  );
}

interface IPlotProps {
  part: 'h2' | 'h3';
  title: string;
  columns: Columns;
  names: string[];
  format(value: number | null): string;
  top: number | null;
  file: string;
}

function Plot(props: IPlotProps): JSX.Element {
  const { part: Part, title, columns, names, format, top, file } = props;
  const { trans } = useUi();
  const picture: Picture = useRef(null);
  const last = columns.slice(1).map(line => format(line[line.length - 1] ?? null));
  const now = names.map((name, index) => `${name} ${last[index]}`).join(', ');
  return (
    <>
      <Part>{title}</Part>
      <Chart
        columns={columns}
        names={names}
        format={format}
        top={top}
        heightPx={HEIGHT_PX}
        label={trans.__('%1 over the last hour, now %2', title, now)}
        picture={picture}
        together="jp-gpushare-hour"
      />
      <div className="jp-GPUShare-actions">
        <SavePng file={file} picture={picture} label={trans.__('Save as PNG: %1', title)} />
      </div>
    </>
  );
}
