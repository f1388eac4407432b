/**
 * "Select Kernel" with the forms of a GPU: the notebook's kernel stands there once for each of them.
 *
 * Whoever draws the dialog (JupyterLab, or an extension in its place) offers the kernelspecs of the session context that
 * it is given, and calls its `changeKernel`. So it is given one that has an entry more for each form.
 */
import { ISessionContext } from '@jupyterlab/apputils';
import { KernelSpec } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';

import { Form, formName, FORMS } from './forms';

type Specs = KernelSpec.ISpecModels;

const MARK = '#'; // in no kernelspec's name

/** What is done when a form was chosen; false: the person thought better of it. */
export type Choose = (form: Form) => Promise<boolean>;

/** `choices`: who takes a choice for that context; null: it is offered no forms. */
export function offerForms(
  dialogs: ISessionContext.IDialogs,
  choices: (context: ISessionContext) => Choose | null,
  trans: TranslationBundle
): void {
  const select = dialogs.selectKernel.bind(dialogs);
  dialogs.selectKernel = context => {
    const choose = choices(context);
    return select(choose ? withForms(context, choose, trans) : context);
  };
}

/** The same session context, with the forms among its kernelspecs. */
export function withForms(
  context: ISessionContext,
  choose: Choose,
  trans: TranslationBundle
): ISessionContext {
  const specsManager = over(context.specsManager, {
    get specs() {
      return withEntries(context.specsManager.specs, ownKernel(context), trans);
    }
  });
  return over(context, {
    specsManager,
    changeKernel: async (model = {}) => {
      const [name, form] = (model.name ?? '').split(MARK);
      if (!form) {
        return context.changeKernel(model);
      }
      const chosen = await choose(form as Form);
      return chosen ? context.changeKernel({ ...model, name }) : (context.session?.kernel ?? null);
    }
  });
}

/** The kernelspec that a notebook has, or would get. */
function ownKernel({ session, kernelPreference, specsManager }: ISessionContext): string {
  const name = session?.kernel?.name ?? kernelPreference.name ?? '';
  const { specs } = specsManager;
  return specs?.kernelspecs[name] ? name : (specs?.default ?? '');
}

function withEntries(specs: Specs | null, name: string, trans: TranslationBundle): Specs | null {
  const own = specs?.kernelspecs[name];
  if (!specs || !own) {
    return specs;
  }
  const entries = FORMS.map(form => ({
    ...own,
    name: own.name + MARK + form,
    display_name: `${own.display_name} · ${formName(form, trans)}`
  }));
  const added = Object.fromEntries(entries.map(entry => [entry.name, entry]));
  return { ...specs, kernelspecs: { ...specs.kernelspecs, ...added } };
}

/** `target` with some of its properties replaced; everything else is its own, written as well as read. */
function over<T extends object>(target: T, own: Partial<T>): T {
  return new Proxy(target, {
    get: (_, key) => {
      const from: object = key in own ? own : target;
      const value: unknown = Reflect.get(from, key);
      return typeof value === 'function' ? (value.bind(from) as unknown) : value;
    },
    set: (_, key, value) => Reflect.set(target, key, value)
  });
}
