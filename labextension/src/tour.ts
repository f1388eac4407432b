/** Three sentences beside what they speak of, once. Skippable; nothing is blocked and no focus is taken. */
import { TranslationBundle } from '@jupyterlab/translation';
import { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

interface IStep {
  /** What it stands beside: the first that is there. */
  anchors: string[];
  text: string;
}

function steps(trans: TranslationBundle): IStep[] {
  const card = '.jp-GPUShare-panel .jp-GPUShare-card';
  const tool = '.jp-GPUShare-tool';
  return [
    { anchors: [tool, card], text: trans.__('This is your share.') },
    {
      anchors: [`${card} .jp-GPUShare-figure`, tool],
      text: trans.__('Run a cell and it grows; stop and others may use it.')
    },
    {
      anchors: [`${card} .jp-GPUShare-actions`, tool],
      text: trans.__('Keep it, or ask for more, here.')
    }
  ];
}

function visible(selectors: string[]): Element | null {
  return (
    selectors
      .flatMap(selector => [...document.querySelectorAll(selector)])
      .find(node => node.getBoundingClientRect().width > 0) ?? null
  );
}

export class Tour extends Widget {
  /** `onEnd` is called once, when it was read or skipped. */
  constructor(
    private readonly _trans: TranslationBundle,
    private readonly _onEnd: () => void
  ) {
    super();
    this.addClass('jp-GPUShare');
    this.addClass('jp-GPUShare-tour');
    this.node.setAttribute('role', 'dialog');
    this.node.setAttribute('aria-label', _trans.__('GPU share, a short tour'));
    this._steps = steps(_trans);
  }

  /** Is there anything to stand beside? */
  static canStart(): boolean {
    return visible(['.jp-GPUShare-tool']) !== null;
  }

  protected override onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this._draw();
  }

  private _draw(): void {
    const { anchors, text } = this._steps[this._at];
    const last = this._at === this._steps.length - 1;
    const words = document.createElement('p');
    words.setAttribute('role', 'status');
    words.textContent = text;
    const place = document.createElement('span');
    place.className = 'jp-GPUShare-aside';
    place.textContent = this._trans.__('%1 of %2', this._at + 1, this._steps.length);
    const row = document.createElement('div');
    row.className = 'jp-GPUShare-actions';
    row.append(place);
    if (!last) {
      row.append(this._button(this._trans.__('Skip'), false, () => this._end()));
    }
    row.append(
      this._button(last ? this._trans.__('Done') : this._trans.__('Next'), true, () => {
        if (last) {
          this._end();
        } else {
          this._at += 1;
          this._draw();
          this.node.querySelector<HTMLElement>('.jp-GPUShare-primary')?.focus();
        }
      })
    );
    this.node.replaceChildren(words, row);
    const box = visible(anchors)?.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.node;
    const left = Math.min(box?.left ?? 16, window.innerWidth - width - 8);
    const below = (box?.bottom ?? 16) + 6;
    this.node.style.left = `${Math.max(8, left)}px`;
    this.node.style.top = `${Math.min(below, window.innerHeight - height - 8)}px`;
  }

  private _button(label: string, primary: boolean, onClick: () => void): HTMLButtonElement {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = `jp-GPUShare-button${primary ? ' jp-GPUShare-primary' : ''}`;
    button.textContent = label;
    button.addEventListener('click', onClick);
    return button;
  }

  private _end(): void {
    this._onEnd();
    this.dispose();
  }

  private readonly _steps: IStep[];
  private _at = 0;
}
