/** The tab of depth: why a notebook has this GPU, its timeline, usage, and GPUs over the last hour. */
import { ReactNode } from 'react';

import { IApi } from './api';
import { Gpus, IArrived } from './components/gpus';
import { TabList } from './components/tablist';
import { Timeline } from './components/timeline';
import { Days, Usage } from './components/usage';
import { Why } from './components/why';
import { IHost, LiveWidget } from './live';
import { serversInOrder } from './order';
import { IScope, READ_MS } from './readings';
import { IHistory, IStatus, IWhy } from './tokens';

export type Depth = 'why' | 'timeline' | 'usage' | 'gpus';

const DAY_S = 86400;
const AGAIN_MS = 60000; // the ledger sums in stretches of minutes

export class DepthView extends LiveWidget {
  /** `session` null: about no notebook. */
  constructor(
    host: IHost,
    private readonly _api: IApi,
    private readonly _session: string | null
  ) {
    super(host);
    this._shown = _session === null ? 'usage' : 'why';
    this.addClass('jp-GPUShare-why');
    this.node.dataset.scrolls = '';
  }

  /** Turns to one of its tabs; `scope`: whose readings the last one shows. */
  turn(to: Depth, scope: IScope | null = this._scope): void {
    this._shown = to;
    this._choose(scope);
    this.update();
  }

  protected draw(): ReactNode {
    const { model, trans } = this.host;
    const { status } = model.snapshot;
    if (!status) {
      return <p className="jp-GPUShare-note">{trans.__('Asking the GPU service…')}</p>;
    }
    const session = this._session === null ? null : (status.sessions[this._session] ?? null);
    const gone = this._session !== null && session === null;
    const names: Record<Depth, string> = {
      why: trans.__('Why this GPU'),
      timeline: trans.__('Timeline'),
      usage: trans.__('Usage'),
      gpus: trans.__('GPUs')
    };
    const tabs: Depth[] =
      this._session === null ? ['usage', 'gpus'] : ['why', 'timeline', 'usage', 'gpus'];
    const own = session?.devices.map(part => part.uuid) ?? [];
    const scope = this._scope ?? (own.length > 0 ? { device: own[0] } : firstOf(status));
    this._ask(own.join(' '), scope);
    return (
      <>
        <TabList
          tabs={tabs}
          names={names}
          shown={this._shown}
          label={
            this._session === null ? trans.__('Usage and history') : trans.__('About this notebook')
          }
          onTurn={to => this.turn(to)}
        />
        <section className="jp-GPUShare-view" data-session={this._session ?? undefined}>
          {this._failure !== null ? (
            <p className="jp-GPUShare-note">{this._failure}</p>
          ) : this._shown === 'gpus' ? (
            <Gpus arrived={this._arrived} scope={scope} onScope={to => this.turn('gpus', to)} />
          ) : this._shown === 'usage' ? (
            <Usage history={this._usage} days={this._days} onDays={this._setDays} />
          ) : gone || !session ? (
            <p className="jp-GPUShare-note">{trans.__('This notebook ended.')}</p>
          ) : !this._why ? (
            <p className="jp-GPUShare-note">{trans.__('Asking the GPU service…')}</p>
          ) : this._shown === 'why' ? (
            <Why session={session} why={this._why} />
          ) : (
            <Timeline
              session={session}
              decided={this._why.decided ?? []}
              history={this._timeline}
            />
          )}
        </section>
      </>
    );
  }

  private _setDays = (days: Days): void => {
    this._days = days;
    this._usage = null;
    this.update();
  };

  private _choose(scope: IScope | null): void {
    if (JSON.stringify(scope) !== JSON.stringify(this._scope)) {
      this._scope = scope;
      this._arrived = null;
    }
  }

  /** Asks for what the tab in front shows: at its first look, when the place changed, and again after a while. */
  private _ask(place: string, scope: IScope): void {
    const again = Math.floor(Date.now() / (this._shown === 'gpus' ? READ_MS : AGAIN_MS));
    const wish = `${this._shown} ${place} ${this._days} ${JSON.stringify(scope)} ${again}`;
    if (wish !== this._asked) {
      this._asked = wish;
      void this._fetch(scope);
    }
  }

  private async _fetch(scope: IScope): Promise<void> {
    const since = Date.now() / 1000 - this._days * DAY_S;
    const chosen = this._scope;
    try {
      if (this._shown === 'gpus') {
        const readings = await this._api.readings(scope);
        if (chosen === this._scope) {
          this._arrived = { readings, at: Date.now() };
        }
      } else if (this._shown === 'usage') {
        this._usage = await this._api.history({ from: since });
      } else if (this._session !== null) {
        this._why = await this._api.why(this._session);
        if (this._shown === 'timeline') {
          this._timeline = await this._api.history({ session: this._session });
        }
      }
      this._failure = null;
    } catch (error) {
      this._failure = (error as Error).message;
    }
    this.update();
  }

  private _shown: Depth;
  private _asked: string | null = null;
  private _why: IWhy | null = null;
  private _timeline: IHistory | null = null;
  private _usage: IHistory | null = null;
  private _arrived: IArrived | null = null;
  /** Null: as it would be by itself. */
  private _scope: IScope | null = null;
  private _days: Days = 7;
  private _failure: string | null = null;
}

/** The first device, where nothing says which. */
function firstOf(status: IStatus): IScope {
  const device = serversInOrder(status).flatMap(server => Object.values(server.devices))[0];
  return device ? { device: device.uuid } : {};
}
