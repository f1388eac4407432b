/** The item in a notebook's toolbar, and the card it opens. */
import { NotebookPanel } from '@jupyterlab/notebook';
import { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { ReactNode } from 'react';

import { ShareBar } from './components/bars';
import { Card } from './components/card';
import { Glyph } from './components/marks';
import { kernelOf } from './focus';
import { IHost, LiveWidget } from './live';
import { appearance, Look } from './states';
import { ISession } from './tokens';

const WITH_BAR: Look[] = ['bound', 'active', 'idle', 'warned', 'pinned', 'resuming', 'parking'];
const NARROW_PX = 500;

/** Glyph, `A100 · 50%` and a small bar; glyph and the one number where the toolbar is narrow. */
export class ToolItem extends LiveWidget {
  constructor(
    host: IHost,
    private readonly _panel: NotebookPanel
  ) {
    super(host);
    this.addClass('jp-GPUShare-toolbar');
    _panel.sessionContext.kernelChanged.connect(() => this.update());
  }

  override dispose(): void {
    this._popup?.dispose();
    super.dispose();
  }

  protected draw(): ReactNode {
    const { model, trans } = this.host;
    const { status } = model.snapshot;
    const session = status?.sessions[kernelOf(this._panel) ?? ''];
    if (!status || !session) {
      return null;
    }
    const texts = appearance(session, { status, snapshot: model.snapshot, now: Date.now() }, trans);
    const narrow = this._panel.toolbar.node.clientWidth < NARROW_PX;
    return (
      <button
        type="button"
        className="jp-GPUShare-tool"
        data-state={session.state}
        data-look={texts.look}
        data-stale={model.snapshot.kind === 'gone' || undefined}
        aria-haspopup="dialog"
        aria-label={trans.__('GPU: %1, %2', texts.label, texts.short)}
        title={texts.word.replaceAll('**', '')}
        onClick={() => this._toggle(session)}
      >
        <Glyph look={texts.look} />
        <span>{narrow ? texts.figure || texts.short : texts.short}</span>
        {!narrow && WITH_BAR.includes(texts.look) && <ShareBar session={session} small />}
      </button>
    );
  }

  private _toggle(session: ISession): void {
    if (this._popup && !this._popup.isDisposed) {
      this._popup.dispose();
      return;
    }
    this._popup = new CardPopup(this.host, session.id, this.node);
    Widget.attach(this._popup, document.body);
  }

  private _popup: CardPopup | undefined;
}

/** The same card as in the panel, under the toolbar item; leaves with Escape or a click elsewhere. */
class CardPopup extends LiveWidget {
  constructor(
    host: IHost,
    private readonly _session: string,
    private readonly _anchor: HTMLElement
  ) {
    super(host);
    this.addClass('jp-GPUShare-popup');
    this.node.setAttribute('role', 'dialog');
    this.node.setAttribute('aria-label', host.trans.__('GPU share'));
  }

  handleEvent(event: Event): void {
    const inside =
      this.node.contains(event.target as Node) || this._anchor.contains(event.target as Node);
    if (event instanceof KeyboardEvent ? event.key === 'Escape' : !inside) {
      this.dispose();
      this._anchor.querySelector('button')?.focus();
    }
  }

  protected draw(): ReactNode {
    const session = this.host.model.snapshot.status?.sessions[this._session];
    return session ? <Card session={session} /> : null;
  }

  protected override onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    const { left, bottom } = this._anchor.getBoundingClientRect();
    const width = this.node.offsetWidth;
    this.node.style.top = `${bottom + 2}px`;
    this.node.style.left = `${Math.max(4, Math.min(left, window.innerWidth - width - 4))}px`;
    document.addEventListener('pointerdown', this, true);
    document.addEventListener('keydown', this, true);
    void this.renderPromise?.then(() => this.node.querySelector<HTMLElement>('article')?.focus());
  }

  protected override onBeforeDetach(msg: Message): void {
    document.removeEventListener('pointerdown', this, true);
    document.removeEventListener('keydown', this, true);
    super.onBeforeDetach(msg);
  }
}
