/** The servers: tiles while there are few devices, else a tree that can be searched. */
import { memo } from 'react';

import { modelName, span } from '../format';
import { serversInOrder } from '../order';
import { IDevice, IServer, IStatus } from '../tokens';
import { useStatus, useUi } from './context';
import { useRoving } from './keys';
import { Glyph } from './marks';
import { Tile } from './tile';
import { Tree } from './tree';

const MOST_TILES = 12;

/** Shows no running time, so that a second that passes leaves it alone. */
export const Servers = memo(function Servers(): JSX.Element {
  const status = useStatus();
  const servers = serversInOrder(status);
  const count = servers.reduce((sum, server) => sum + Object.keys(server.devices).length, 0);
  return (
    <>
      {count > MOST_TILES ? (
        <Tree />
      ) : (
        servers.map(server => <Open key={server.name} server={server} />)
      )}
      <Legend />
    </>
  );
});

/** "4 × A100 80GB", or the number of devices where models differ. */
function content(server: IServer, trans: ReturnType<typeof useUi>['trans']): string {
  const devices = Object.values(server.devices);
  const models = new Set(devices.map(device => modelName(device.model)));
  return models.size === 1
    ? `${devices.length} × ${[...models][0]}`
    : trans._n('%1 GPU', '%1 GPUs', devices.length);
}

function Open({ server }: { server: IServer }): JSX.Element {
  const { trans } = useUi();
  const down = server.state === 'down';
  const silent = server.age_s === null ? '' : trans.__('silent for %1', span(server.age_s, trans));
  return (
    <section className="jp-GPUShare-server" data-server={server.name} data-state={server.state}>
      <h3>
        {down && <Glyph look="lost" label={trans.__('silent')} />}
        <span>{server.name}</span>
        <span className="jp-GPUShare-aside">
          {[down ? silent : '', content(server, trans)].filter(Boolean).join(' · ')}
        </span>
      </h3>
      <Inside server={server} />
    </section>
  );
}

function Inside({ server }: { server: IServer }): JSX.Element {
  const { trans } = useUi();
  return server.state === 'down' ? (
    <p className="jp-GPUShare-note">
      {trans.__('Its GPUs are not offered until it answers. Notebooks there keep running.')}
    </p>
  ) : (
    <Tiles server={server} />
  );
}

function byIndex(server: IServer): IDevice[] {
  return Object.values(server.devices).sort(
    (a, b) => a.index - b.index || a.uuid.localeCompare(b.uuid)
  );
}

function Tiles({ server }: { server: IServer }): JSX.Element {
  const roving = useRoving();
  return (
    <div className="jp-GPUShare-tiles" role="list" {...roving}>
      {byIndex(server).map(device => (
        <Tile key={device.uuid} server={server} device={device} />
      ))}
    </div>
  );
}

function Legend(): JSX.Element {
  const { trans, byUse = false } = useUi();
  const status = useStatus();
  const words: [string, string][] = [
    ...((byUse
      ? [
          ['busy', trans.__('computing')],
          ['held', trans.__('held, idle')]
        ]
      : [
          ['mine', trans.__('you')],
          ['others', trans.__('others')]
        ]) as [string, string][]),
    ...(hasForeign(status) ? ([['foreign', trans.__('not managed')]] as [string, string][]) : []),
    ...(byUse && isBroken(status)
      ? ([['out', trans.__('out of service')]] as [string, string][])
      : []),
    ['free', trans.__('free')]
  ];
  return (
    <p className="jp-GPUShare-legend">
      {words.map(([kind, word]) => (
        <span key={kind}>
          <i data-kind={kind} aria-hidden="true" />
          {word}
        </span>
      ))}
    </p>
  );
}

function isBroken(status: IStatus): boolean {
  return Object.values(status.servers).some(
    ({ state, devices }) =>
      state === 'down' || Object.values(devices).some(device => device.state !== 'healthy')
  );
}

function hasForeign(status: IStatus): boolean {
  return Object.values(status.servers).some(server =>
    Object.values(server.devices).some(device => device.others.length > 0)
  );
}
