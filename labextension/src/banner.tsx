/** The banner above a notebook: at most one, where it matters, and the line being read stays where it is. */
import { Notification } from '@jupyterlab/apputils';
import { NotebookPanel } from '@jupyterlab/notebook';
import { MessageLoop } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { ReactNode } from 'react';

import { BannerKind, bannerOf, happened, Happening, IBanner } from './banners';
import { useUi } from './components/context';
import { Glyph, IconButton, Rich, vars } from './components/marks';
import { kernelOf } from './focus';
import { IHost, LiveWidget } from './live';
import { ISession } from './tokens';

const RESUMED_MS = 5000;
const MOVED_MS = 60000;
const NOTIFIED: BannerKind[] = ['reclaim', 'lost'];
const LAST_WORD_S = 10;

export class Banner extends LiveWidget {
  constructor(
    host: IHost,
    private readonly _panel: NotebookPanel
  ) {
    super(host);
    this.addClass('jp-GPUShare-bannerHost');
    host.model.changed.connect(this._onModel, this);
    this.hide();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this._sizes.disconnect();
      this.host.model.changed.disconnect(this._onModel, this);
    }
    super.dispose();
  }

  protected draw(): ReactNode {
    const banner = this._banner();
    return (
      banner && (
        <div ref={this._watch}>
          <BannerView
            banner={banner}
            refusal={this._refusal}
            onAct={this._act}
            onClose={() => this._close(banner.kind)}
          />
        </div>
      )
    );
  }

  private _banner(): IBanner | null {
    const { model, trans, preferences } = this.host;
    const { snapshot } = model;
    const session = this._session();
    if (!session || !snapshot.status) {
      return null;
    }
    const moment = { status: snapshot.status, snapshot, now: Date.now() };
    const banner = bannerOf(
      session,
      moment.now < this._until ? this._happening : null,
      moment,
      trans
    );
    if (!banner) {
      this._closed = null; // the event is over: the next of its kind shows again
      return null;
    }
    return banner.kind === this._closed || preferences.banners[banner.kind] === false
      ? null
      : banner;
  }

  private _session(): ISession | undefined {
    return this.host.model.snapshot.status?.sessions[kernelOf(this._panel) ?? ''];
  }

  private _onModel(): void {
    const session = this._session();
    const { kind } = this.host.model.snapshot;
    if (kind === 'ready' && this._wasGone) {
      this._happening = 'back';
      this._until = Date.now() + RESUMED_MS;
    }
    if (session) {
      const happening = this._before?.id === session.id ? happened(this._before, session) : null;
      if (happening) {
        this._happening = happening;
        this._until = Date.now() + (happening === 'moved' ? MOVED_MS : RESUMED_MS);
      }
      this._before = session;
    }
    const banner = this._banner();
    this._wasGone = kind === 'gone' && (this._wasGone || banner?.kind === 'degraded');
    this._panel.toggleClass('jp-GPUShare-answerable', banner?.kind === 'reclaim');
    if (banner && !this._panel.isVisible) {
      this._notify(banner);
    }
    if (banner === null) {
      this._notified = null;
    }
    this.setHidden(banner === null);
  }

  /** Only what needs an answer is told when its notebook is hidden, once. */
  private _notify(banner: IBanner): void {
    const off = this.host.preferences.notifications[banner.kind] === false;
    if (off || !NOTIFIED.includes(banner.kind) || this._notified === banner.kind) {
      return;
    }
    this._notified = banner.kind;
    const message = `${this._panel.title.label}: ${banner.text.replaceAll('**', '')}`;
    const session = this._session();
    Notification.emit(message, banner.kind === 'lost' ? 'error' : 'warning', {
      autoClose: false,
      actions: banner.actions.map(({ action, label }) => ({
        label,
        callback: () => {
          if (session && action !== 'retry' && action !== 'stay') {
            this.host
              .act(action, session.id)
              .catch((error: Error) => Notification.error(error.message));
          }
        }
      }))
    });
  }

  private _close(kind: BannerKind): void {
    this._closed = kind;
    this.setHidden(true);
  }

  private _act = (action: IBanner['actions'][number]['action']): void => {
    const session = this._session();
    if (action === 'retry') {
      this.host.model.retry();
    } else if (action === 'stay') {
      this._close('none');
    } else if (session) {
      this._refusal = null;
      this.host.act(action, session.id).catch((error: Error) => {
        this._refusal = error.message;
        this.update();
      });
    }
  };

  private _watch = (content: HTMLElement | null): void => {
    this._sizes.disconnect();
    if (content) {
      this._sizes.observe(content);
    }
  };

  /** The layout above gives the height that is asked for, and the notebook is scrolled by as much. */
  private _fit(height: number): void {
    const delta = height - this._height;
    this._height = height;
    this.node.style.minHeight = `${height}px`;
    if (this.parent) {
      MessageLoop.sendMessage(this.parent, Widget.Msg.FitRequest);
    }
    const scroller =
      this._panel.content.node.querySelector('.jp-WindowedPanel-outer') ?? this._panel.content.node;
    if (scroller.scrollTop > 0) {
      scroller.scrollTop += delta;
    }
  }

  private readonly _sizes = new ResizeObserver(([entry]) => this._fit(entry.target.clientHeight));
  private _before: ISession | undefined;
  private _happening: Happening = null;
  private _until = 0;
  /** The service's absence was shown. */
  private _wasGone = false;
  private _closed: BannerKind | null = null;
  private _notified: BannerKind | null = null;
  private _refusal: string | null = null;
  private _height = 0;
}

interface IViewProps {
  banner: IBanner;
  refusal: string | null;
  onAct(action: IBanner['actions'][number]['action']): void;
  onClose(): void;
}

export function BannerView({ banner, refusal, onAct, onClose }: IViewProps): JSX.Element {
  const { trans } = useUi();
  const { look, tone, text, actions, urgent, progress, closable = true } = banner;
  const seconds = /\*\*0:(\d\d)\*\*/.exec(text)?.[1];
  // A countdown is read out at its start and at ten seconds, never each second.
  const spoken =
    seconds && Number(seconds) <= LAST_WORD_S
      ? text.replace(/0:\d\d/, `0:${LAST_WORD_S}`)
      : text.replace(/\*\*\d+:\d\d\*\*/, '…');
  return (
    <div className="jp-GPUShare-banner" data-kind={banner.kind} data-tone={tone}>
      <Glyph look={look} />
      <span className="jp-GPUShare-spoken" role={banner.kind === 'lost' ? 'alert' : 'status'}>
        {spoken.replaceAll('**', '')}
      </span>
      <p aria-hidden="true">
        <Rich text={refusal ?? text} />
      </p>
      {actions.length > 0 && (
        <div className="jp-GPUShare-actions">
          {actions.map(({ action, label }, index) => (
            <button
              key={action}
              type="button"
              data-action={action}
              className={
                urgent && index === 0
                  ? 'jp-GPUShare-button jp-GPUShare-primary'
                  : 'jp-GPUShare-button'
              }
              onClick={() => onAct(action)}
            >
              {label}
            </button>
          ))}
        </div>
      )}
      {closable && <IconButton icon="close" label={trans.__('Dismiss')} onClick={onClose} />}
      {progress !== undefined && progress !== null && (
        <span className="jp-GPUShare-progress" aria-hidden="true">
          <span style={vars({ now: progress })} />
        </span>
      )}
    </div>
  );
}
