// What a detector does after its network: keeps the best of overlapping boxes, compares them with the true
// ones, and counts the points in each.
#include <turnout/turnout.h>

#include <cstdio>
#include <vector>

int main() {
  // x, y, z, dx, dy, dz, heading
  const std::vector<float> found = {10.0f, 4.0f, 0.8f, 4.2f, 1.8f, 1.6f, 0.30f,   //
                                    10.3f, 4.1f, 0.8f, 4.0f, 1.8f, 1.6f, 0.35f,   // the same car
                                    22.0f, -3.f, 0.9f, 4.4f, 1.9f, 1.7f, -1.50f,  //
                                    22.1f, -2.f, 0.9f, 4.4f, 1.9f, 1.7f, -1.45f};
  const std::vector<float> scores = {0.8f, 0.6f, 0.5f, 0.9f};
  const std::vector<float> truth = {10.1f, 4.0f,  0.8f, 4.1f, 1.8f, 1.6f, 0.32f,  //
                                    22.1f, -2.2f, 0.9f, 4.4f, 1.9f, 1.7f, -1.50f};
  const std::vector<float> points = {10.0f, 4.2f,  0.5f, 11.5f, 4.4f, 1.0f,
                                     22.0f, -2.5f, 0.4f, 5.0f,  5.0f, 0.f};
  try {
    std::vector<std::int64_t> keep(scores.size());
    const auto kept = static_cast<std::size_t>(
        turnout::nms3d(turnout::view(found, {4, 7}), turnout::view(scores), turnout::view(keep), 0.1));
    std::vector<float> iou(4 * 2);
    turnout::boxes_iou3d(turnout::view(found, {4, 7}), turnout::view(truth, {2, 7}),
                         turnout::view(iou, {4, 2}));
    std::vector<std::int32_t> box_of_point(4);
    turnout::points_in_boxes(turnout::view(points, {4, 3}), turnout::view(truth, {2, 7}),
                             turnout::view(box_of_point));

    for (std::size_t i = 0; i < kept; ++i)
      std::printf("box %d, score %.1f: IoU %.2f and %.2f with the true boxes\n", static_cast<int>(keep[i]),
                  scores[static_cast<std::size_t>(keep[i])], iou[static_cast<std::size_t>(2 * keep[i])],
                  iou[static_cast<std::size_t>(2 * keep[i] + 1)]);
    for (std::size_t i = 0; i < 4; ++i) std::printf("point %zu: box %d\n", i, box_of_point[i]);
    const bool right = kept == 2 && keep[0] == 3 && keep[1] == 0 && iou[0] > 0.8f && iou[7] > 0.7f &&
                       box_of_point == std::vector<std::int32_t>{0, 0, 1, -1};
    return right ? 0 : 1;
  } catch (const turnout::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}

// Output:
//   box 3, score 0.9: IoU 0.00 and 0.87 with the true boxes
//   box 0, score 0.8: IoU 0.92 and 0.00 with the true boxes
//   point 0: box 0
//   point 1: box 0
//   point 2: box 1
//   point 3: box -1
