/** Choosing at the start: launcher cards and kernels in each form, and the form of the notebook in front. */
import { JupyterFrontEnd } from '@jupyterlab/application';
import { ISessionContext, Notification } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { KernelSpec } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';
import { DisposableSet } from '@lumino/disposable';

import { IApi } from './api';
import { askFor } from './dialogs';
import { DEMANDS, emptyNotebook, Form, formName, FORMS, outlook, remembered } from './forms';
import { kernelOf } from './focus';
import { gpuIcon } from './icons';
import { offerForms } from './kernelforms';
import { IDemand, IGPUShareModel } from './tokens';

export const NEW = 'gpushare:new-notebook';
export const CHOOSE = 'gpushare:choose';

const FRESH_MS = 30000; // an estimate is asked again when a card is drawn later than that

export interface IStartingOptions {
  app: JupyterFrontEnd;
  api: IApi;
  model: IGPUShareModel;
  tracker: INotebookTracker | null;
  launcher: ILauncher | null;
  dialogs: ISessionContext.IDialogs | null;
  trans: TranslationBundle;
}

/** Writes the choice into the notebook and tells the service, for the next kernel. */
export async function remember(
  panel: NotebookPanel,
  demand: Partial<IDemand>,
  api: IApi
): Promise<void> {
  panel.content.model?.setMetadata('gpushare', remembered(demand));
  await panel.context.save();
  await api.wish(panel.context.localPath, demand);
}

/** The notebook's next kernel gets what any other gets. */
async function forget(panel: NotebookPanel, api: IApi): Promise<void> {
  if (panel.content.model?.getMetadata('gpushare') !== undefined) {
    panel.content.model.deleteMetadata('gpushare');
    await panel.context.save();
    await api.wish(panel.context.path, {});
  }
}

export function addStarting(options: IStartingOptions): void {
  const { app, api, model, tracker, launcher, dialogs, trans } = options;
  const { commands } = app;
  const { contents, kernelspecs } = app.serviceManager;
  const known = new Map<Form, { text: string; at: number }>();
  let cards = new DisposableSet();

  const specs = (): KernelSpec.ISpecModel[] =>
    Object.values(kernelspecs.specs?.kernelspecs ?? {}).filter(spec => spec !== undefined);

  /** The text as it was heard last; what is old is asked for, and the cards drawn again when it differs. */
  const live = (form: Form): string => {
    const last = known.get(form);
    if (form !== 'none' && form !== 'several' && Date.now() - (last?.at ?? 0) > FRESH_MS) {
      known.set(form, { text: last?.text ?? '', at: Date.now() });
      const demand = { ...(DEMANDS[form] ?? {}) } as IDemand;
      void api.estimate(demand).then(
        eta => {
          const text = outlook(eta, trans);
          known.set(form, { text, at: Date.now() });
          if (text !== last?.text) {
            addCards();
          }
        },
        () => undefined // the card stays without its second line
      );
    }
    return known.get(form)?.text ?? '';
  };

  /** What a form asks for, null: what any other does; undefined: the person thought better of it. */
  const demandOf = async (form: Form): Promise<Partial<IDemand> | null | undefined> => {
    const { status } = model.snapshot;
    return form === 'several'
      ? ((status && (await askFor({ gpus: 2 }, status, api, trans))) ?? undefined)
      : DEMANDS[form];
  };

  const addCards = (): void => {
    cards.dispose();
    cards = new DisposableSet();
    if (!launcher || model.snapshot.kind === 'absent') {
      return;
    }
    for (const spec of specs()) {
      FORMS.forEach((form, rank) =>
        cards.add(
          launcher.add({
            command: NEW,
            args: { kernel: spec.name, form },
            category: trans.__('Notebook with GPU'),
            rank
          })
        )
      );
    }
  };

  commands.addCommand(NEW, {
    label: args => {
      const form = (args.form as Form | undefined) ?? 'share';
      const spec = specs().find(one => one.name === args.kernel);
      const name = `${spec?.display_name ?? trans.__('Notebook')} · ${formName(form, trans)}`;
      const text = args.kernel ? live(form) : '';
      return text ? `${name}: ${text}` : name;
    },
    caption: trans.__('A new notebook, and what it asks of the GPUs'),
    icon: gpuIcon,
    execute: async args => {
      const form = (args.form as Form | undefined) ?? 'share';
      const spec =
        specs().find(one => one.name === args.kernel) ??
        specs().find(one => one.name === kernelspecs.specs?.default);
      const demand = await demandOf(form);
      if (demand === undefined || !spec) {
        return;
      }
      const made = await contents.newUntitled({
        path: (args.cwd as string | undefined) ?? '',
        type: 'notebook'
      });
      const content = emptyNotebook(spec, demand);
      await contents.save(made.path, { type: 'notebook', format: 'json', content });
      await commands.execute('docmanager:open', {
        path: made.path,
        factory: 'Notebook',
        kernel: { name: spec.name }
      });
    }
  });

  commands.addCommand(CHOOSE, {
    label: trans.__('GPU for This Notebook…'),
    caption: trans.__('How much GPU this notebook asks for; kept in its metadata'),
    isEnabled: () => Boolean(tracker?.currentWidget) && model.snapshot.kind === 'ready',
    execute: async () => {
      const panel = tracker?.currentWidget;
      const { status } = model.snapshot;
      if (!panel || !status) {
        return;
      }
      const session = status.sessions[kernelOf(panel) ?? ''];
      const kept = panel.content.model?.getMetadata('gpushare') as IDemand | undefined;
      const demand = await askFor(kept ?? session?.demand ?? { gpus: 0.1 }, status, api, trans);
      if (!demand) {
        return;
      }
      await remember(panel, demand, api)
        .then(() =>
          Notification.info(
            trans.__('Kept in %1. It counts when its kernel starts again.', panel.title.label)
          )
        )
        .catch((error: Error) => Notification.error(error.message));
    }
  });

  const chosenIn =
    (panel: NotebookPanel) =>
    async (form: Form): Promise<boolean> => {
      const demand = await demandOf(form);
      if (demand === undefined) {
        return false;
      }
      const kept = demand ? remember(panel, demand, api) : forget(panel, api);
      return kept.then(
        () => true,
        (error: Error) => {
          Notification.error(error.message);
          return false;
        }
      );
    };

  if (dialogs) {
    offerForms(
      dialogs,
      context => {
        const panel = tracker?.find(candidate => candidate.sessionContext === context);
        return panel && model.snapshot.kind === 'ready' ? chosenIn(panel) : null;
      },
      trans
    );
  }
  if (launcher) {
    kernelspecs.specsChanged.connect(addCards);
    void kernelspecs.ready.then(addCards);
  }
}
