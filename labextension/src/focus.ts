/** Which kernel the person looks at: that of the notebook in front, wherever the focus went since. */
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { ISignal, Signal } from '@lumino/signaling';

export interface IFocus {
  /** Id of the kernel, null while no notebook is in front. */
  readonly kernel: string | null;
  readonly changed: ISignal<IFocus, string | null>;
}

export class NotebookFocus implements IFocus {
  constructor(tracker: INotebookTracker | null) {
    this._tracker = tracker;
    const follow = (panel: NotebookPanel | null): void => {
      panel?.sessionContext.kernelChanged.connect(this._tell, this);
      this._tell();
    };
    tracker?.currentChanged.connect((_, panel) => follow(panel));
    follow(tracker?.currentWidget ?? null);
  }

  get kernel(): string | null {
    return this._tracker?.currentWidget ? kernelOf(this._tracker.currentWidget) : null;
  }

  get changed(): ISignal<this, string | null> {
    return this._changed;
  }

  private _tell(): void {
    this._changed.emit(this.kernel);
  }

  private readonly _tracker: INotebookTracker | null;
  private readonly _changed = new Signal<this, string | null>(this);
}

export function kernelOf(panel: NotebookPanel): string | null {
  return panel.sessionContext.session?.kernel?.id ?? null;
}
