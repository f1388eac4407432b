/** The tab that explains a placement; asked again whenever the session's devices change. */
import { ReactNode } from 'react';

import { IApi } from './api';
import { Why } from './components/why';
import { IHost, LiveWidget } from './live';
import { IWhy } from './tokens';

export class WhyView extends LiveWidget {
  constructor(
    host: IHost,
    private readonly _api: IApi,
    private readonly _session: string
  ) {
    super(host);
    this.addClass('jp-GPUShare-why');
  }

  protected draw(): ReactNode {
    const { model, trans } = this.host;
    const session = model.snapshot.status?.sessions[this._session];
    if (!session) {
      return <p className="jp-GPUShare-note">{trans.__('This notebook ended.')}</p>;
    }
    const place = session.devices.map(part => part.uuid).join(' ');
    if (place !== this._asked) {
      this._asked = place;
      void this._ask();
    }
    if (this._failure !== null) {
      return <p className="jp-GPUShare-note">{this._failure}</p>;
    }
    return this._why ? (
      <Why session={session} why={this._why} />
    ) : (
      <p className="jp-GPUShare-note">{trans.__('Asking the GPU service…')}</p>
    );
  }

  private async _ask(): Promise<void> {
    try {
      this._why = await this._api.why(this._session);
      this._failure = null;
    } catch (error) {
      this._failure = (error as Error).message;
    }
    this.update();
  }

  private _asked: string | null = null;
  private _why: IWhy | null = null;
  private _failure: string | null = null;
}
