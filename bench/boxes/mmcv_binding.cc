// Python's names for the operators of mmcv that the benchmarks and recorded results need. mmcv's own list has
// all its operators, which take a quarter of an hour to compile.
#include <torch/extension.h>

using at::Tensor;

void box_iou_rotated(const Tensor boxes1, const Tensor boxes2, Tensor ious, const int mode_flag,
                     const bool aligned);
Tensor nms_rotated(const Tensor dets, const Tensor scores, const Tensor order, const Tensor dets_sorted,
                   const Tensor labels, const float iou_threshold, const int multi_label);
Tensor nms(Tensor boxes, Tensor scores, float iou_threshold, int offset);
void points_in_boxes_cpu_forward(Tensor boxes, Tensor points, Tensor pts_indices);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("box_iou_rotated", &box_iou_rotated);
  module.def("nms_rotated", &nms_rotated);
  module.def("nms", &nms);
  module.def("points_in_boxes_cpu_forward", &points_in_boxes_cpu_forward);
}
