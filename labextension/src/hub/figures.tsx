/** The sentence and the four figures at the top: an admin's of the whole hub, a user's of themselves. */
import { TranslationBundle } from '@jupyterlab/translation';

import { useMoment, useUi } from '../components/context';
import { troubleOf } from '../components/tile';
import {
  about,
  charged,
  devices as amount,
  exactSpan,
  ordinal,
  percent,
  shortModel
} from '../format';
import { lookup } from '../lookup';
import { holds, totals } from '../order';
import { IHistory, ISession, IStatus } from '../tokens';
import { running, totalShare } from '../view';
import { FigureTile } from './parts';
import { inLine, IPressure, meanUse, outBy, pressure, resting, trend, wantedBy } from './pressure';

/** To a tenth from two devices on: as fine as a figure about many need be. */
export function tenth(count: number): string {
  return amount(count < 2 ? count : Math.round(count * 10) / 10);
}

export function headline(status: IStatus, trans: TranslationBundle): string {
  if (status.admin) {
    const { waiting, idle, out, devices } = pressure(status);
    if (devices === 0) {
      return trans.__('No GPU server has reported yet.');
    }
    if (waiting > 0) {
      return trans._n(
        '%1 waits while %2 GPUs are held idle.',
        '%1 wait while %2 GPUs are held idle.',
        waiting,
        tenth(idle)
      );
    }
    const free = trans.__(
      '%1 of %2 GPUs are free; nobody waits.',
      tenth(status.summary.free),
      devices
    );
    return out > 0
      ? `${free} ${trans._n('%1 is out of service.', '%1 are out of service.', out)}`
      : free;
  }
  const [first] = inLine(status).filter(session => session.mine);
  if (first) {
    return trans.__(
      'You are %1 in line, %2.',
      ordinal(first.queue_position ?? 0, trans),
      about(first.eta_s, trans)
    );
  }
  const held = ownShare(status);
  return held > 0
    ? trans._n(
        'You hold %1 GPU; %2 of %3 are free.',
        'You hold %1 GPUs; %2 of %3 are free.',
        held,
        tenth(status.summary.free),
        status.summary.devices
      )
    : trans.__('%1 of %2 GPUs are free.', tenth(status.summary.free), status.summary.devices);
}

function own(status: IStatus): ISession[] {
  return lookup(status).sessions.filter(session => session.mine && session.state !== 'dead');
}

function ownShare(status: IStatus): number {
  return own(status).reduce((sum, session) => sum + totalShare(session), 0);
}

export function Figures({ history }: { history: IHistory | null }): JSX.Element {
  const { status } = useMoment();
  return (
    <div className="jp-GPUShare-figures">
      {status.admin ? <Everybodys history={history} /> : <Own history={history} />}
    </div>
  );
}

function Everybodys({ history }: { history: IHistory | null }): JSX.Element {
  const { trans } = useUi();
  const moment = useMoment();
  const { status } = moment;
  const now = pressure(status);
  const trendOf = (
    name: keyof Omit<IPressure, 'devices'>,
    most: number
  ): ReturnType<typeof trend> =>
    trend([...(history?.figures ?? []), { ago_s: 0, ...now }], name, most);
  const waits = inLine(status).map(session => running(session, 'waiting_s', moment) ?? 0);
  const idle = resting(moment);
  const kept = idle
    .filter(session => session.pinned_until_s !== null)
    .reduce((sum, session) => sum + totalShare(session), 0);
  const use = meanUse(status);
  const word = (uuid: string): string => {
    const place = lookup(status).places.get(uuid);
    const trouble = place && troubleOf(place.server, place.device, trans);
    return place?.server.state === 'down'
      ? trans.__('silent')
      : (trouble?.word ?? trans.__('not offered'));
  };
  const list = (pairs: [string, number][]): string =>
    pairs.map(([what, count]) => trans.__('%1: %2', what, count)).join(' · ');
  const most = Math.max(1, now.devices);
  return (
    <>
      <FigureTile
        look="waiting"
        name={trans.__('Waiting')}
        value={String(now.waiting)}
        of={waits.length > 0 ? trans.__('longest %1', exactSpan(Math.max(...waits), trans)) : ''}
        note={list(
          wantedBy(inLine(status)).map(([model, count]) => [
            model ? shortModel(model) : trans.__('any GPU'),
            count
          ])
        )}
        trend={trendOf(
          'waiting',
          Math.max(10, ...(history?.figures ?? []).map(one => one.waiting), now.waiting)
        )}
      />
      <FigureTile
        look="active"
        name={trans.__('Computing')}
        value={tenth(now.computing)}
        of={trans._n('of %1 GPU', 'of %1 GPUs', now.devices)}
        note={use === null ? '' : trans.__('%1 busy on average', percent(use))}
        trend={trendOf('computing', most)}
        mine
      />
      <FigureTile
        look="idle"
        name={trans.__('Held but idle')}
        value={tenth(now.idle)}
        of={trans._n('GPUs, %1 notebook', 'GPUs, %1 notebooks', idle.length)}
        note={
          idle.length === 0
            ? ''
            : trans.__('%1 can be taken back, %2 are kept', tenth(now.idle - kept), tenth(kept))
        }
        trend={trendOf('idle', most)}
      />
      <FigureTile
        look={now.out > 0 ? 'lost' : 'bound'}
        name={trans.__('Out of service')}
        value={String(now.out)}
        of={trans._np('unit', 'GPU', 'GPUs', now.out)}
        note={list(outBy(status, word))}
        trend={trendOf('out', most)}
      />
    </>
  );
}

function Own({ history }: { history: IHistory | null }): JSX.Element {
  const { trans } = useUi();
  const moment = useMoment();
  const { status } = moment;
  const { free, devices } = totals(status);
  const sessions = own(status);
  const mine = history?.by_user[status.user] ?? 0;
  const part = history && history.total_gpu_s > 0 ? mine / history.total_gpu_s : null;
  const fair = history?.fair[status.user] ?? null;
  const [first] = inLine(status).filter(session => session.mine);
  return (
    <>
      <FigureTile
        look="active"
        name={trans.__('Yours now')}
        value={amount(ownShare(status))}
        of={trans._np('unit', 'GPU', 'GPUs', ownShare(status))}
        note={trans._n(
          '%1 of %2 notebook holds a GPU',
          '%1 of %2 notebooks hold a GPU',
          sessions.filter(holds).length,
          sessions.length
        )}
      />
      <FigureTile
        look="idle"
        name={trans.__('Your use')}
        value={percent(part)}
        of={history ? charged(mine) : ''}
        note={fair === null ? '' : trans.__('of all use; your fair share is %1', percent(fair))}
      />
      <FigureTile
        look="bound"
        name={trans.__('Free')}
        value={tenth(free)}
        of={trans._n('of %1 GPU', 'of %1 GPUs', devices)}
        note={free >= 1 ? trans.__('A whole one starts now') : ''}
      />
      <FigureTile
        look="waiting"
        name={trans.__('In line')}
        value={String(status.queue.length)}
        note={
          first
            ? trans.__(
                'You are %1, %2',
                ordinal(first.queue_position ?? 0, trans),
                about(running(first, 'eta_s', moment), trans)
              )
            : trans.__('None of your notebooks waits.')
        }
      />
    </>
  );
}
