import { LabIcon } from '@jupyterlab/ui-components';

import gpuSvg from '../style/gpu.svg';

export const gpuIcon = new LabIcon({ name: 'jupyter-gpushare:gpu', svgstr: gpuSvg });
