/** The devices of a large hub: search, filters, and one list of lines of which only those in sight are drawn. */
import { KeyboardEvent, memo, useCallback, useMemo, useState } from 'react';

import { devices as amount, modelName, occupied, percent } from '../format';
import { IPlace } from '../lookup';
import { Filter, FILTERS, held, HEIGHTS, ILine, ITreeState, meanBusy, parentOf } from '../tree';
import { PLAIN, searched, toggled, treeOf } from '../tree';
import { isOffered, isTroubled, myShareOf, mySessionsOn } from '../view';
import { Slices, Sparkline } from './bars';
import { useStatus, useUi } from './context';
import { opensMenu } from './keys';
import { Icon, vars } from './marks';
import { freeWord, Tile, troubleOf } from './tile';
import { VirtualList } from './virtual';

const keyOf = (line: ILine): string => line.key;
const heightOf = (line: ILine): number => HEIGHTS[line.kind];
const textOf = (line: ILine): string => line.name;

export function Tree(): JSX.Element {
  const { trans, tree: kept, keepTree, openDeviceMenu } = useUi();
  const status = useStatus();
  const [state, setState] = useState<ITreeState>(kept ?? PLAIN);
  const { lines, counts } = useMemo(() => treeOf(status, state), [status, state]);
  const change = useCallback(
    (next: (old: ITreeState) => ITreeState): void =>
      setState(old => {
        const made = next(old);
        keepTree?.(made);
        return made;
      }),
    [keepTree]
  );
  const toggle = useCallback((key: string): void => change(old => toggled(old, key)), [change]);
  const search = (part: Partial<ITreeState>): void => change(old => searched(old, part));
  const onKey = (
    event: KeyboardEvent<HTMLElement>,
    line: ILine,
    go: (key: string) => void
  ): boolean => {
    const rightToLeft = getComputedStyle(event.currentTarget).direction === 'rtl';
    const [forth, back] = rightToLeft ? ['ArrowLeft', 'ArrowRight'] : ['ArrowRight', 'ArrowLeft'];
    if (opensMenu(event) && line.kind === 'device') {
      openDeviceMenu?.(line.places[0].device.uuid, event.target as HTMLElement);
    } else if (event.key === 'Enter' || event.key === ' ') {
      toggle(line.key);
    } else if (event.key === forth && line.open === false) {
      toggle(line.key);
    } else if (event.key === forth && line.open) {
      go(lines[lines.indexOf(line) + 1].key);
    } else if (event.key === back && line.open) {
      toggle(line.key);
    } else if (event.key === back) {
      const parent = parentOf(lines, line.key);
      if (parent !== null) {
        go(parent);
      }
    } else {
      return false;
    }
    return true;
  };
  return (
    <>
      <Search state={state} search={search} />
      <Filters state={state} counts={counts} search={search} />
      {lines.length === 0 ? (
        <p className="jp-GPUShare-note">
          {trans.__('No GPU matches.')}{' '}
          <button
            type="button"
            className="jp-GPUShare-link"
            onClick={() => search({ query: '', filter: 'all' })}
          >
            {trans.__('Clear the filter')}
          </button>
        </p>
      ) : (
        <>
          <div className="jp-GPUShare-caption">
            <button
              type="button"
              className="jp-GPUShare-link"
              title={trans.__('Group by model or by server')}
              onClick={() =>
                change(old => ({
                  ...old,
                  grouping: old.grouping === 'model' ? 'server' : 'model',
                  toggled: []
                }))
              }
            >
              {state.grouping === 'model'
                ? trans.__('By model, then server')
                : trans.__('By server')}
            </button>
            <span>{trans.__('GPUs free')}</span>
          </div>
          <VirtualList
            items={lines}
            keyOf={keyOf}
            heightOf={heightOf}
            textOf={textOf}
            draw={line => <Line key={line.key} line={line} toggle={toggle} />}
            role="tree"
            label={trans.__('Servers')}
            className="jp-GPUShare-tree"
            onKey={onKey}
          />
        </>
      )}
    </>
  );
}

interface IControls {
  state: ITreeState;
  search(part: Partial<Pick<ITreeState, 'query' | 'filter'>>): void;
}

function Search({ state, search }: IControls): JSX.Element {
  const { trans, leave } = useUi();
  return (
    <label className="jp-GPUShare-search">
      <Icon name="search" />
      <input
        type="search"
        aria-label={trans.__('Search GPUs')}
        aria-keyshortcuts="/"
        placeholder={trans.__('Model, server, free>0.5 …')}
        title={trans.__('Words, and model: server: free>0.5 mem>40 (GiB not in use)')}
        value={state.query}
        onChange={event => search({ query: event.target.value })}
        onKeyDown={event => {
          if (event.key === 'Escape') {
            event.preventDefault();
            if (state.query) {
              search({ query: '' });
            } else {
              leave?.();
            }
          }
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </label>
  );
}

function Filters({
  state,
  counts,
  search
}: IControls & { counts: Record<Filter, number> }): JSX.Element {
  const { trans } = useUi();
  const words: Record<Filter, string> = {
    all: trans.__('All'),
    free: trans.__('Free now'),
    mine: trans.__('Mine'),
    trouble: trans.__('Trouble')
  };
  return (
    <div className="jp-GPUShare-filters" role="group" aria-label={trans.__('Filter GPUs')}>
      {FILTERS.map(filter => (
        <button
          key={filter}
          type="button"
          className="jp-GPUShare-filter"
          data-filter={filter}
          aria-pressed={state.filter === filter}
          onClick={() => search({ filter })}
        >
          {words[filter]} {amount(counts[filter])}
        </button>
      ))}
    </div>
  );
}

interface ILineProps {
  line: ILine;
  toggle(key: string): void;
}

const Line = memo(function Line({ line, toggle }: ILineProps): JSX.Element {
  const { openDeviceMenu } = useUi();
  const text = useLabel(line);
  return (
    <div
      className={`jp-GPUShare-line jp-GPUShare-line-${line.kind}`}
      role="treeitem"
      aria-level={line.level}
      aria-expanded={line.open ?? undefined}
      aria-posinset={line.at}
      aria-setsize={line.of}
      aria-label={text}
      data-stop
      data-key={line.key}
      data-server={line.kind === 'server' ? line.name : undefined}
      data-device={line.kind === 'device' ? line.places[0].device.uuid : undefined}
      data-level={line.level}
      tabIndex={-1}
      style={{ blockSize: HEIGHTS[line.kind] }}
      onClick={line.kind === 'tile' ? undefined : () => toggle(line.key)}
      onContextMenu={event => {
        if (openDeviceMenu && (line.kind === 'device' || line.kind === 'tile')) {
          event.preventDefault();
          event.stopPropagation();
          openDeviceMenu(line.places[0].device.uuid, event.currentTarget);
        }
      }}
    >
      {line.kind === 'tile' ? (
        <Tile server={line.places[0].server} device={line.places[0].device} inTree />
      ) : line.kind === 'device' ? (
        <DeviceLine place={line.places[0]} />
      ) : (
        <Summary line={line} />
      )}
    </div>
  );
});

function useLabel(line: ILine): string {
  const { trans } = useUi();
  const status = useStatus();
  const [{ server, device }] = line.places;
  if (line.kind === 'device' || line.kind === 'tile') {
    const word = troubleOf(server, device, trans)?.word ?? freeWord(server, device, trans);
    return [line.name, modelName(device.model), word].join(', ');
  }
  const { free } = held(line.places, status);
  return `${line.name}, ${trans.__('%1 of %2 free', amount(round(free)), line.places.length)}`;
}

/** A tenth of a device is as fine as a line about many of them need be. */
function round(free: number): number {
  return Math.round(free * 10) / 10;
}

const MOST_CELLS = 32;
const OWNERS = ['mine', 'others', 'foreign', 'out'] as const;
const USES = ['busy', 'held', 'foreign', 'out'] as const;

/** A model or a server: how its devices are held, and how many are free. */
function Summary({ line }: { line: ILine }): JSX.Element {
  const { trans, byUse = false } = useUi();
  const status = useStatus();
  const { kind, name, places, open } = line;
  const parts = held(places, status);
  const lost = places.filter(
    ({ server, device }) => device.state === 'lost' || server.state === 'down'
  ).length;
  const busy = meanBusy(places);
  return (
    <>
      <Icon name={open ? 'down' : 'right'} />
      <span className="jp-GPUShare-lineName" title={name}>
        {name}
        {kind === 'group' && <span className="jp-GPUShare-times"> × {places.length}</span>}
      </span>
      {kind === 'server' && places.length <= MOST_CELLS && !byUse ? (
        <span
          className="jp-GPUShare-cells"
          data-rows={places.length > 16 ? 2 : 1}
          aria-hidden="true"
        >
          {places.map(place => (
            <Cell key={place.device.uuid} place={place} />
          ))}
        </span>
      ) : (
        <span className="jp-GPUShare-slices" aria-hidden="true">
          {(byUse ? USES : OWNERS)
            .filter(part => parts[part] > 0.001)
            .map(part => (
              <span key={part} data-kind={part} style={vars({ share: parts[part] })} />
            ))}
        </span>
      )}
      <span className="jp-GPUShare-wide">
        {kind === 'server' &&
          [
            lost > 0 ? trans.__('%1 lost', lost) : '',
            busy === null ? '' : trans.__('busy %1', percent(busy))
          ]
            .filter(Boolean)
            .join(' · ')}
      </span>
      <span className="jp-GPUShare-free">{amount(round(parts.free))}</span>
    </>
  );
}

function Cell({ place }: { place: IPlace }): JSX.Element {
  const status = useStatus();
  const { server, device } = place;
  const mine = myShareOf(status, device.uuid);
  const kind =
    device.state === 'lost' || server.state === 'down'
      ? 'lost'
      : isOffered(server, device)
        ? undefined
        : 'foreign';
  return (
    <span
      data-kind={kind}
      data-mine={mine > 0 || undefined}
      style={vars({ allocated: device.allocated ?? 0, mine })}
    />
  );
}

function DeviceLine({ place }: { place: IPlace }): JSX.Element {
  const { trans, snapshot } = useUi();
  const status = useStatus();
  const { server, device } = place;
  const word = troubleOf(server, device, trans)?.word ?? freeWord(server, device, trans);
  const mine = mySessionsOn(status, device.uuid).length > 0;
  const degrees = device.temperature_c === null ? '' : ` · ${Math.round(device.temperature_c)} °C`;
  return (
    <>
      <span title={device.uuid}>GPU {device.index}</span>
      <Sparkline
        points={snapshot.traces[device.uuid]?.busy ?? []}
        mine={mine}
        label={trans.__(
          '%1 over the last two minutes, now %2',
          trans.__('Busy'),
          percent(device.utilization)
        )}
      />
      <Slices device={device} label={word} />
      <span className="jp-GPUShare-wide">
        <bdi>{`${occupied(device.memory_used, device.memory_total)} GiB${degrees}`}</bdi>
      </span>
      <span className="jp-GPUShare-free" data-trouble={isTroubled(place) || undefined}>
        {word}
      </span>
    </>
  );
}
