/** Help inside JupyterLab, without internet: the pages of docs/users, drawn by its own Markdown renderer. */
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { Message } from '@lumino/messaging';
import { PanelLayout, Widget } from '@lumino/widgets';

const MARKDOWN = 'text/markdown';

export class Help extends Widget {
  constructor(private readonly _rendermime: IRenderMimeRegistry) {
    super();
    this.addClass('jp-GPUShare-help');
    this.node.tabIndex = -1;
    this.layout = new PanelLayout();
  }

  /** Turns to a page; one that is not known is the first. */
  async turn(name: string): Promise<void> {
    const { isPage, pageText } = await import('./helppages');
    const page = isPage(name) ? name : 'panel';
    const drawn = this._rendermime.createRenderer(MARKDOWN);
    await drawn.renderModel(
      this._rendermime.createModel({ data: { [MARKDOWN]: pageText(page) }, trusted: true })
    );
    const layout = this.layout as PanelLayout;
    for (const old of [...layout.widgets]) {
      old.dispose();
    }
    layout.addWidget(drawn);
    this.node.dataset.page = page;
    this.node.scrollTop = 0;
  }

  handleEvent(event: Event): void {
    const link = (event.target as Element).closest('a');
    const name = /([\w-]+)\.md(?:$|[?#])/.exec(link?.getAttribute('href') ?? '')?.[1];
    if (name !== undefined) {
      event.preventDefault();
      event.stopPropagation();
      void this.turn(name);
    }
  }

  protected override onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this.node.addEventListener('click', this, true);
  }

  protected override onBeforeDetach(msg: Message): void {
    this.node.removeEventListener('click', this, true);
    super.onBeforeDetach(msg);
  }
}
