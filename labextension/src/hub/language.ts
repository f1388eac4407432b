/** The page's language. JupyterLab's own gettext makes functions of texts, which the page's security policy forbids. */
import type { TranslationBundle } from '@jupyterlab/translation';

/** As `make texts` writes them: the forms of each text, its context before it. */
export type Messages = Record<string, string[]>;

const CONTEXT_END = '\u0004';
const CATEGORIES: Intl.LDMLPluralRule[] = ['zero', 'one', 'two', 'few', 'many', 'other'];

/** "%1" and on by their place. */
function filled(text: string, args: readonly unknown[]): string {
  return text.replace(/%(\d)/g, (all, place: string) => String(args[Number(place) - 1] ?? all));
}

/** Texts in `language`; one that `messages` lack stays as it is. */
export function bundle(language: string, messages: Messages = {}): TranslationBundle {
  const rules = new Intl.PluralRules(language);
  const known = new Set(rules.resolvedOptions().pluralCategories);
  const order = CATEGORIES.filter(category => known.has(category));

  const say = (context: string, text: string, ...args: unknown[]): string =>
    filled(messages[context + text]?.[0] ?? text, args);
  const count = (
    context: string,
    one: string,
    many: string,
    n: number,
    ...args: unknown[]
  ): string => {
    const forms = messages[context + one];
    const form = forms?.[Math.min(order.indexOf(rules.select(n)), forms.length - 1)];
    return filled(form ?? (n === 1 ? one : many), [n, ...args]);
  };
  const gettext: TranslationBundle['gettext'] = (text, ...args) => say('', text, ...args);
  const ngettext: TranslationBundle['ngettext'] = (one, many, n, ...args) =>
    count('', one, many, n, ...args);
  const pgettext: TranslationBundle['pgettext'] = (context, text, ...args) =>
    say(context + CONTEXT_END, text, ...args);
  const npgettext: TranslationBundle['npgettext'] = (context, one, many, n, ...args) =>
    count(context + CONTEXT_END, one, many, n, ...args);
  return {
    __: gettext,
    _n: ngettext,
    _p: pgettext,
    _np: npgettext,
    gettext,
    ngettext,
    pgettext,
    npgettext,
    dcnpgettext: (_domain, context, one, many, n, ...args) =>
      npgettext(context, one, many, n, ...args)
  };
}
