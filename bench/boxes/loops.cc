// Peers that go through all pairs one by one, as the functions for the CPU of OpenPCDet and mmcv do: sine and
// cosine for each pair, no search, one thread. The formulas are those of the README of src/boxes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace {

struct Point {
  float x, y;
};

bool is_inside(const float* box, Point p) {
  const float c = std::cos(-box[6]), s = std::sin(-box[6]);
  const float rx = (p.x - box[0]) * c + (p.y - box[1]) * -s, ry = (p.x - box[0]) * s + (p.y - box[1]) * c;
  return std::abs(rx) < box[3] / 2 + 0.01f && std::abs(ry) < box[4] / 2 + 0.01f;
}

float turn(Point p, Point q, Point o) { return (p.x - o.x) * (q.y - o.y) - (q.x - o.x) * (p.y - o.y); }

bool cross_at(Point p0, Point p1, Point q0, Point q1, Point& at) {
  if (std::min(p0.x, p1.x) > std::max(q0.x, q1.x) || std::min(q0.x, q1.x) > std::max(p0.x, p1.x) ||
      std::min(p0.y, p1.y) > std::max(q0.y, q1.y) || std::min(q0.y, q1.y) > std::max(p0.y, p1.y))
    return false;
  const float s1 = turn(q0, p1, p0), s2 = turn(p1, q1, p0), s3 = turn(p0, q1, q0), s4 = turn(q1, p1, q0);
  if (!(s1 * s2 > 0 && s3 * s4 > 0)) return false;
  const float s5 = turn(q1, p1, p0);
  if (std::abs(s5 - s1) > 1e-8f) {
    at = {(s5 * q0.x - s1 * q1.x) / (s5 - s1), (s5 * q0.y - s1 * q1.y) / (s5 - s1)};
  } else {
    const float a0 = p0.y - p1.y, b0 = p1.x - p0.x, c0 = p0.x * p1.y - p1.x * p0.y;
    const float a1 = q0.y - q1.y, b1 = q1.x - q0.x, c1 = q0.x * q1.y - q1.x * q0.y;
    const float d = a0 * b1 - a1 * b0;
    at = {(b0 * c1 - b1 * c0) / d, (a1 * c0 - a0 * c1) / d};
  }
  return true;
}

float overlap(const float* a, const float* b) {
  const auto corners = [](const float* box, Point* to) {
    const float c = std::cos(box[6]), s = std::sin(box[6]);
    for (int k = 0; k < 4; ++k) {
      const float u = (k == 1 || k == 2 ? box[3] : -box[3]) / 2, v = (k >= 2 ? box[4] : -box[4]) / 2;
      to[k] = {u * c - v * s + box[0], u * s + v * c + box[1]};
    }
    to[4] = to[0];
  };
  Point p[5], q[5], found[24], middle{0, 0};
  corners(a, p);
  corners(b, q);
  int count = 0;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      if (cross_at(p[i], p[i + 1], q[j], q[j + 1], found[count])) ++count;
  for (int k = 0; k < 4; ++k) {
    if (is_inside(a, q[k])) found[count++] = q[k];
    if (is_inside(b, p[k])) found[count++] = p[k];
  }
  for (int k = 0; k < count; ++k) middle = {middle.x + found[k].x, middle.y + found[k].y};
  middle = {middle.x / static_cast<float>(count), middle.y / static_cast<float>(count)};
  const auto angle = [&](Point one) { return std::atan2(one.y - middle.y, one.x - middle.x); };
  for (int j = 0; j < count - 1; ++j)
    for (int i = 0; i < count - j - 1; ++i)
      if (angle(found[i]) > angle(found[i + 1])) std::swap(found[i], found[i + 1]);
  float area = 0;
  for (int k = 0; k < count - 1; ++k) area += turn(found[k], found[k + 1], found[0]);
  return std::abs(area) / 2;
}

float iou(const float* a, const float* b) {
  const float shared = overlap(a, b);
  return shared / std::max(a[3] * a[4] + b[3] * b[4] - shared, 1e-8f);
}

}  // namespace

extern "C" {

void loops_iou_bev(const float* a, std::int64_t rows, const float* b, std::int64_t columns, float* to) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) to[i * columns + j] = iou(a + 7 * i, b + 7 * j);
}

// Boxes by descending score. Returns how many are kept.
std::int64_t loops_nms3d(const float* boxes, std::int64_t count, float threshold, std::int64_t* kept) {
  std::vector<bool> is_suppressed(static_cast<std::size_t>(count));
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (is_suppressed[static_cast<std::size_t>(i)]) continue;
    kept[found++] = i;
    for (std::int64_t j = i + 1; j < count; ++j)
      if (!is_suppressed[static_cast<std::size_t>(j)] && iou(boxes + 7 * i, boxes + 7 * j) > threshold)
        is_suppressed[static_cast<std::size_t>(j)] = true;
  }
  return found;
}

// [boxes, points] of 0 and 1, with a margin of 1 cm.
void loops_points_in_boxes(const float* boxes, std::int64_t count, const float* points, std::int64_t rows,
                           std::int32_t* to) {
  for (std::int64_t n = 0; n < count; ++n)
    for (std::int64_t m = 0; m < rows; ++m) {
      const float *box = boxes + 7 * n, *p = points + 3 * m;
      bool has = std::abs(p[2] - box[2]) <= box[5] / 2.0;
      if (has) {
        const float c = std::cos(-box[6]), s = std::sin(-box[6]);
        const float lx = (p[0] - box[0]) * c + (p[1] - box[1]) * -s;
        const float ly = (p[0] - box[0]) * s + (p[1] - box[1]) * c;
        has = std::abs(lx) < box[3] / 2.0 + 1e-2f && std::abs(ly) < box[4] / 2.0 + 1e-2f;
      }
      to[n * rows + m] = has;
    }
}

}  // extern "C"
