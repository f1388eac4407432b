/** The plugins: the model, and what shows it. Everything but the model is optional, so that other shells can use it. */
import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import {
  ICommandPalette,
  ISessionContext,
  ISessionContextDialogs,
  IToolbarWidgetRegistry,
  MainAreaWidget,
  Notification
} from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ServerConnection } from '@jupyterlab/services';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';
import { DisposableDelegate, IDisposable } from '@lumino/disposable';
import { Widget } from '@lumino/widgets';

import { createAct } from './acting';
import { createApi } from './api';
import { Banner } from './banner';
import {
  addCommands,
  addDeviceCommands,
  COMMANDS,
  createDeviceMenu,
  createMenu,
  DEVICE_COMMANDS,
  SHOW
} from './commands';
import { Depth, DepthView } from './depthview';
import { confirmDrain, showCheck } from './dialogs';
import { NotebookFocus } from './focus';
import { Help } from './help';
import { gpuIcon } from './icons';
import { IHost, IPreferences } from './live';
import { GPUShareModel } from './model';
import { GPUSharePanel } from './panel';
import { IScope } from './readings';
import { addStarting, CHOOSE, NEW } from './starting';
import { StatusItem } from './statusitem';
import { Tabs } from './tabs';
import { IGPUShareModel, ISession } from './tokens';
import { ToolItem } from './toolitem';
import { Tour } from './tour';
import { ITreeState, PLAIN } from './tree';

const HELP = 'gpushare:help';

/** Where the state of the tree of devices is kept, in each workspace. */
const TREE = 'jupyter-gpushare:tree';

/** Provides the model: one stream for the whole browser, whoever shows it. */
const modelPlugin: JupyterFrontEndPlugin<IGPUShareModel> = {
  id: 'jupyter-gpushare:model',
  description: 'Keeps the state of the shared GPUs up to date.',
  autoStart: true,
  provides: IGPUShareModel,
  activate: (app: JupyterFrontEnd): IGPUShareModel => {
    const { serverSettings } = app.serviceManager;
    return new GPUShareModel({
      api: createApi(serverSettings, ServerConnection.makeRequest),
      tabs: new Tabs(serverSettings.baseUrl)
    });
  }
};

const uiPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpushare:plugin',
  description: 'Shows which GPU each notebook uses, how much of it, what happens next, and why.',
  autoStart: true,
  requires: [IGPUShareModel],
  optional: [
    ITranslator,
    ISettingRegistry,
    ILayoutRestorer,
    ICommandPalette,
    INotebookTracker,
    IStatusBar,
    IToolbarWidgetRegistry,
    IStateDB,
    ILauncher,
    IRenderMimeRegistry,
    ISessionContextDialogs
  ],
  activate: (
    app: JupyterFrontEnd,
    model: IGPUShareModel,
    translator: ITranslator | null,
    settings: ISettingRegistry | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    tracker: INotebookTracker | null,
    statusBar: IStatusBar | null,
    toolbar: IToolbarWidgetRegistry | null,
    state: IStateDB | null,
    launcher: ILauncher | null,
    rendermime: IRenderMimeRegistry | null,
    dialogs: ISessionContext.IDialogs | null
  ): void => {
    const trans = (translator ?? nullTranslator).load('jupyter_gpushare');
    const api = createApi(app.serviceManager.serverSettings, ServerConnection.makeRequest);
    const preferences: IPreferences = { rowKeys: true, banners: {}, notifications: {} };
    const { commands } = app;

    /** Opens (or turns to) the tab about a session, or about usage. */
    const look = (session: ISession | null, depth: Depth, scope?: IScope): void => {
      const id = `jp-gpushare-depth-${session?.id ?? 'usage'}`;
      const open = [...app.shell.widgets('main')].find(widget => widget.id === id);
      if (open instanceof MainAreaWidget) {
        (open as MainAreaWidget<DepthView>).content.turn(depth, scope);
      } else {
        const content = new DepthView(host, api, session?.id ?? null);
        content.turn(depth, scope);
        const tab = new MainAreaWidget({ content });
        tab.id = id;
        tab.title.label = session ? trans.__('GPU: %1', session.label) : trans.__('GPU usage');
        tab.title.caption = session?.path ?? tab.title.label;
        tab.title.icon = gpuIcon;
        tab.title.closable = true;
        app.shell.add(tab, 'main');
      }
      app.shell.activateById(id);
    };

    /** Opens (or turns to) the tab of help. */
    const openHelp = async (registry: IRenderMimeRegistry, page: string): Promise<void> => {
      const id = 'jp-gpushare-help';
      const open = [...app.shell.widgets('main')].find(widget => widget.id === id);
      const tab =
        open instanceof MainAreaWidget
          ? (open as MainAreaWidget<Help>)
          : new MainAreaWidget({ content: new Help(registry) });
      if (tab !== open) {
        tab.id = id;
        tab.title.label = trans.__('GPU Sharing Help');
        tab.title.icon = gpuIcon;
        tab.title.closable = true;
        app.shell.add(tab, 'main');
      }
      await tab.content.turn(page);
      app.shell.activateById(id);
    };
    if (rendermime) {
      commands.addCommand(HELP, {
        label: trans.__('GPU Sharing Help'),
        caption: trans.__('What the panel shows, and what can be done'),
        execute: args => openHelp(rendermime, String(args.page ?? 'panel'))
      });
    }

    const host: IHost = {
      model,
      focus: new NotebookFocus(tracker),
      trans,
      preferences,
      act: createAct({ api, model, tracker, trans, preferences, look }),
      openMenu: createMenu(commands),
      openDeviceMenu: createDeviceMenu(commands),
      keepTree: tree => void state?.save(TREE, { ...tree }),
      leave: () => tracker?.currentWidget?.activate(),
      reveal: session => {
        if (session.path !== null && commands.hasCommand('docmanager:open')) {
          void commands.execute('docmanager:open', { path: session.path });
        }
      },
      runCheck: () => {
        showCheck(api, trans).catch((error: Error) => Notification.error(error.message));
      },
      openUsage: () => look(null, 'usage'),
      openHelp: rendermime ? page => void commands.execute(HELP, { page }) : undefined,
      openPanel: () => void commands.execute(SHOW),
      openSettings: () => void commands.execute('settingeditor:open', { query: 'GPU shares' })
    };

    void state?.fetch(TREE).then(tree => {
      host.tree = { ...PLAIN, ...(tree as Partial<ITreeState> | undefined) };
    });

    const panel = new GPUSharePanel(host);
    app.shell.add(panel, 'left', { rank: 450 });
    restorer?.add(panel, panel.id);

    const show = async (): Promise<void> => {
      if (panel.isVisible && panel.node.contains(document.activeElement)) {
        tracker?.currentWidget?.activate();
      } else {
        app.shell.activateById(panel.id);
        await panel.focusFirst();
      }
    };
    addCommands(commands, { host, trans, show });
    addDeviceCommands(commands, {
      host,
      trans,
      drain: async (place, drained) => {
        if (!drained || (await confirmDrain(place, trans))) {
          await api.drain(place.device.uuid, drained);
        }
      },
      lookBack: device => look(null, 'gpus', device === null ? undefined : { device })
    });
    addStarting({ app, api, model, tracker, launcher, dialogs, trans });
    [...COMMANDS, DEVICE_COMMANDS.readings, NEW, CHOOSE, ...(rendermime ? [HELP] : [])].forEach(
      command => palette?.addItem({ command, category: trans.__('GPU') })
    );

    statusBar?.registerStatusItem('jupyter-gpushare:status', {
      item: new StatusItem(host),
      align: 'right',
      rank: 90
    });

    toolbar?.addFactory<NotebookPanel>(
      'Notebook',
      'gpushare',
      notebook => new ToolItem(host, notebook)
    );
    app.docRegistry.addWidgetExtension('Notebook', {
      createNew(notebook: NotebookPanel): IDisposable {
        const banner: Widget = new Banner(host, notebook);
        notebook.contentHeader.addWidget(banner);
        return new DisposableDelegate(() => banner.dispose());
      }
    });

    settings
      ?.load(uiPlugin.id)
      .then(loaded => {
        const apply = (): void => {
          preferences.rowKeys = loaded.get('rowKeys').composite !== false;
          preferences.banners = (loaded.get('banners').composite ?? {}) as Record<string, boolean>;
          preferences.notifications = (loaded.get('notifications').composite ?? {}) as Record<
            string,
            boolean
          >;
          model.pollSeconds = loaded.get('refreshSeconds').composite as number;
        };
        loaded.changed.connect(apply);
        apply();
        if (loaded.get('tour').composite !== false) {
          showTourOnce(model, trans, () => void loaded.set('tour', false));
        }
      })
      .catch((reason: unknown) =>
        console.warn('jupyter-gpushare keeps its default settings:', reason)
      );
  }
};

/** As soon as a notebook shows its share for the first time; `onEnd`: it was read or skipped. */
function showTourOnce(model: IGPUShareModel, trans: TranslationBundle, onEnd: () => void): void {
  const start = (): void => {
    if (Tour.canStart()) {
      model.changed.disconnect(start);
      Widget.attach(new Tour(trans, onEnd), document.body);
    }
  };
  model.changed.connect(start);
}

export default [modelPlugin, uiPlugin];
