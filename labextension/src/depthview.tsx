/** The tab of a notebook's depth: why this GPU, its timeline, and usage. Asked again when its devices change. */
import { ReactNode } from 'react';

import { IApi } from './api';
import { TabList } from './components/tablist';
import { Timeline } from './components/timeline';
import { Days, Usage } from './components/usage';
import { Why } from './components/why';
import { IHost, LiveWidget } from './live';
import { IHistory, IWhy } from './tokens';

export type Depth = 'why' | 'timeline' | 'usage';

const DAY_S = 86400;
const AGAIN_MS = 60000; // the ledger sums in stretches of minutes

export class DepthView extends LiveWidget {
  /** `session` null: usage only. */
  constructor(
    host: IHost,
    private readonly _api: IApi,
    private readonly _session: string | null,
    private _shown: Depth = _session === null ? 'usage' : 'why'
  ) {
    super(host);
    this.addClass('jp-GPUShare-why');
    this.node.dataset.scrolls = '';
  }

  /** Turns to one of its tabs. */
  turn(to: Depth): void {
    this._shown = to;
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
      usage: trans.__('Usage')
    };
    const tabs: Depth[] = this._session === null ? ['usage'] : ['why', 'timeline', 'usage'];
    this._ask(session?.devices.map(part => part.uuid).join(' ') ?? '');
    return (
      <>
        {tabs.length > 1 && (
          <TabList
            tabs={tabs}
            names={names}
            shown={this._shown}
            label={trans.__('About this notebook')}
            onTurn={to => this.turn(to)}
          />
        )}
        <section className="jp-GPUShare-view" data-session={this._session ?? undefined}>
          {this._failure !== null ? (
            <p className="jp-GPUShare-note">{this._failure}</p>
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

  /** Asks for what the tab in front shows: at its first look, when the place changed, and once a minute. */
  private _ask(place: string): void {
    const minute = Math.floor(Date.now() / AGAIN_MS);
    const wish = `${this._shown} ${place} ${this._days} ${minute}`;
    if (wish !== this._asked) {
      this._asked = wish;
      void this._fetch();
    }
  }

  private async _fetch(): Promise<void> {
    const since = Date.now() / 1000 - this._days * DAY_S;
    try {
      if (this._shown === 'usage') {
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

  private _asked: string | null = null;
  private _why: IWhy | null = null;
  private _timeline: IHistory | null = null;
  private _usage: IHistory | null = null;
  private _days: Days = 7;
  private _failure: string | null = null;
}
