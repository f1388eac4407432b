import { MessageLoop } from '@lumino/messaging';
import { ReactNode } from 'react';

import { Overview } from './components/overview';
import { gpuIcon } from './icons';
import { IHost, LiveWidget } from './live';

/** The side panel. */
export class GPUSharePanel extends LiveWidget {
  constructor(host: IHost) {
    super(host);
    const title = host.trans.__('GPU share');
    this.id = 'jp-gpushare-panel';
    this.addClass('jp-GPUShare-panel');
    this.title.icon = gpuIcon;
    this.title.caption = title;
    this.node.dataset.scrolls = '';
    this.node.addEventListener('keydown', event => {
      const search = this.node.querySelector<HTMLElement>('.jp-GPUShare-search input');
      if (event.key === '/' && search && event.target !== search) {
        event.preventDefault();
        search.focus();
      }
    });
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', title);
  }

  /** Puts the focus on the card, or else on the first thing that takes it; where the person is quicker, it stays. */
  async focusFirst(): Promise<void> {
    this.update();
    MessageLoop.flush();
    await this.renderPromise; // a panel just shown has nothing in it yet
    if (this.node.contains(document.activeElement)) {
      return;
    }
    const find = (what: string): HTMLElement | null => this.node.querySelector<HTMLElement>(what);
    (find('.jp-GPUShare-card') ?? find('[data-stop][tabindex="0"]') ?? find('button'))?.focus();
  }

  protected draw(): ReactNode {
    return <Overview />;
  }
}
