// The overlap of two boxes of 5 numbers, from what is computed once for each box.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "turnout/boxes.h"

namespace turnout::families::boxes {

template <class Real>
struct RotatedBox {
  Real x, y, area;
  Real cos_w, sin_w, cos_h, sin_h;  // half of cosine and sine, times w and h

  RotatedBox() = default;
  explicit RotatedBox(const Real* box) : x(box[0]), y(box[1]), area(box[2] * box[3]) {
    const Real c = static_cast<Real>(std::cos(double{box[4]})) * Real(0.5);
    const Real s = static_cast<Real>(std::sin(double{box[4]})) * Real(0.5);
    cos_w = c * box[2];
    sin_w = s * box[2];
    cos_h = c * box[3];
    sin_h = s * box[3];
  }
  bool is_empty() const { return double{area} < 1e-14; }
};

template <class Real>
struct Vector {
  Real x, y;
  friend Vector operator-(Vector a, Vector b) { return {a.x - b.x, a.y - b.y}; }
  friend Real cross(Vector a, Vector b) { return a.x * b.y - b.x * a.y; }
  friend Real dot(Vector a, Vector b) { return a.x * b.x + a.y * b.y; }
};

// The corners of a box, relative to the middle of the centres of a pair, and its edges.
template <class Real>
struct ShiftedBox {
  Vector<Real> corner[4], edge[4];

  ShiftedBox(const RotatedBox<Real>& box, double shift_x, double shift_y) {
    const auto x = static_cast<Real>(double{box.x} - shift_x), y = static_cast<Real>(double{box.y} - shift_y);
    corner[0] = {x - box.sin_h - box.cos_w, y + box.cos_h - box.sin_w};
    corner[1] = {x + box.sin_h - box.cos_w, y - box.cos_h - box.sin_w};
    for (int k = 0; k < 2; ++k) corner[k + 2] = {2 * x - corner[k].x, 2 * y - corner[k].y};
    for (int k = 0; k < 4; ++k) edge[k] = corner[(k + 1) % 4] - corner[k];
  }
  bool has(Vector<Real> p) const {
    const Vector<Real> from = p - corner[0];
    const Real along = dot(from, edge[0]), across = -dot(from, edge[3]);
    return along >= 0 && along <= dot(edge[0], edge[0]) && across >= 0 && across <= dot(edge[3], edge[3]);
  }
};

// The area of the convex hull of 3 .. 24 points, by Graham's scan. Reorders the points.
template <class Real>
Real hull_area(Vector<Real>* q, int count) {
  int first = 0;
  for (int i = 1; i < count; ++i)
    if (q[i].y < q[first].y || (q[i].y == q[first].y && q[i].x < q[first].x)) first = i;
  const Vector<Real> start = q[first];
  Real distance[24];
  for (int i = 0; i < count; ++i) q[i] = q[i] - start;
  std::swap(q[0], q[first]);
  for (int i = 0; i < count; ++i) distance[i] = dot(q[i], q[i]);
  for (int i = 1; i + 1 < count; ++i)
    for (int j = i + 1; j < count; ++j) {
      const double turn = cross(q[i], q[j]);
      if (turn < -1e-6 || (std::abs(turn) < 1e-6 && distance[i] > distance[j])) {
        std::swap(q[i], q[j]);
        std::swap(distance[i], distance[j]);
      }
    }
  int k = 1;
  while (k < count && !(double{distance[k]} > 1e-8)) ++k;
  if (k == count) return 0;
  q[1] = q[k];
  int top = 2;
  for (++k; k < count; ++k) {
    while (top > 1 && cross(q[k] - q[top - 2], q[top - 1] - q[top - 2]) >= 0) --top;
    q[top++] = q[k];
  }
  if (top < 3) return 0;
  Real area = 0;
  for (int i = 1; i + 1 < top; ++i) area += std::abs(cross(q[i] - q[0], q[i + 1] - q[0]));
  return area / 2;
}

template <class Real>
Real iou_of(const RotatedBox<Real>& a, const RotatedBox<Real>& b, IouMode mode) {
  if (a.is_empty() || b.is_empty()) return 0;
  const double shift_x = double{a.x + b.x} / 2, shift_y = double{a.y + b.y} / 2;
  const ShiftedBox<Real> p(a, shift_x, shift_y), q(b, shift_x, shift_y);
  Vector<Real> points[24];
  int count = 0;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const Real determinant = cross(q.edge[j], p.edge[i]);
      if (std::abs(double{determinant}) <= 1e-14) continue;
      const Vector<Real> between = q.corner[j] - p.corner[i];
      const Real t1 = cross(q.edge[j], between) / determinant, t2 = cross(p.edge[i], between) / determinant;
      if (t1 >= 0 && t1 <= 1 && t2 >= 0 && t2 <= 1)
        points[count++] = {p.corner[i].x + p.edge[i].x * t1, p.corner[i].y + p.edge[i].y * t1};
    }
  for (const Vector<Real>& corner : p.corner)
    if (q.has(corner)) points[count++] = corner;
  for (const Vector<Real>& corner : q.corner)
    if (p.has(corner)) points[count++] = corner;
  const Real inter = count <= 2 ? Real(0) : hull_area(points, count);
  return mode == IouMode::iou ? inter / (a.area + b.area - inter) : inter / a.area;
}

}  // namespace turnout::families::boxes
