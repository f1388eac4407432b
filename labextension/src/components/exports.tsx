/** Buttons that hand what is shown to the browser as a file. */
import { save, saveText } from '../save';
import { Picture } from './chart';
import { useUi } from './context';

/** The name of a file about this, without its ending. */
export function fileOf(name: string): string {
  return `gpushare-${name.replace(/[^\w.-]+/g, '-')}`;
}

/** `text`: asked for when it is wanted. */
export function SaveCsv({ file, text }: { file: string; text(): string }): JSX.Element {
  const { trans } = useUi();
  return (
    <button
      type="button"
      className="jp-GPUShare-button"
      onClick={() => saveText(`${file}.csv`, text())}
    >
      {trans.__('Save as CSV')}
    </button>
  );
}

interface ISavePngProps {
  file: string;
  picture: Picture;
  /** Where several stand on a page: which this is; begins with what the button says, as those who speak to it need. */
  label?: string;
}

export function SavePng({ file, picture, label }: ISavePngProps): JSX.Element {
  const { trans } = useUi();
  return (
    <button
      type="button"
      className="jp-GPUShare-button"
      aria-label={label}
      onClick={() => void picture.current?.().then(image => image && save(`${file}.png`, image))}
    >
      {trans.__('Save as PNG')}
    </button>
  );
}
