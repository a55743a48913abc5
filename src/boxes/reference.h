// The definition of each operator of this family: serial, readable, one pair at a time, in the numbers' own
// type. The operators have its bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "simd/half.h"
#include "turnout/boxes.h"

namespace turnout::reference {

template <class Real>
struct Point {
  Real x, y;
  friend Point operator-(Point a, Point b) { return {a.x - b.x, a.y - b.y}; }
};
template <class Real>
Real cross(Point<Real> a, Point<Real> b) {
  return a.x * b.y - b.x * a.y;
}

// -- overlap of boxes of 7 numbers, in bird's-eye view -----------------------------------------------------

template <class Real>
struct Bev {
  Real x, y, z, dx, dy, dz, cosine, sine;
  Point<Real> corner[4];

  explicit Bev(const Real* box)
      : x(box[0]),
        y(box[1]),
        z(box[2]),
        dx(box[3]),
        dy(box[4]),
        dz(box[5]),
        cosine(static_cast<Real>(std::cos(double{box[6]}))),
        sine(static_cast<Real>(std::sin(double{box[6]}))) {
    const int to_the_right[] = {0, 1, 1, 0}, upwards[] = {0, 0, 1, 1};
    for (int k = 0; k < 4; ++k) {
      const Real u = to_the_right[k] ? x + dx / 2 : x - dx / 2;
      const Real v = upwards[k] ? y + dy / 2 : y - dy / 2;
      corner[k] = {(u - x) * cosine + (v - y) * -sine + x, (u - x) * sine + (v - y) * cosine + y};
    }
  }
  // With a margin of 1 cm.
  bool has(Point<Real> p) const {
    const Real rx = (p.x - x) * cosine + (p.y - y) * sine;
    const Real ry = (p.x - x) * -sine + (p.y - y) * cosine;
    return std::abs(rx) < dx / 2 + Real(0.01) && std::abs(ry) < dy / 2 + Real(0.01);
  }
};

// Whether the intervals from p0 to p1 and from q0 to q1 touch. NaN is ignored, as by fmin and fmax.
template <class Real>
bool touch(Real p0, Real p1, Real q0, Real q1) {
  return std::fmin(p0, p1) <= std::fmax(q0, q1) && std::fmin(q0, q1) <= std::fmax(p0, p1);
}

// Appends the point in which two edges cross, if they do.
template <class Real>
void add_crossing(Point<Real> p0, Point<Real> p1, Point<Real> q0, Point<Real> q1,
                  std::vector<Point<Real>>& points) {
  if (!touch(p0.x, p1.x, q0.x, q1.x) || !touch(p0.y, p1.y, q0.y, q1.y)) return;
  const Real s1 = cross(q0 - p0, p1 - p0), s2 = cross(p1 - p0, q1 - p0);
  const Real s3 = cross(p0 - q0, q1 - q0), s4 = cross(q1 - q0, p1 - q0);
  if (!(s1 * s2 > 0 && s3 * s4 > 0)) return;
  const Real s5 = cross(q1 - p0, p1 - p0);
  if (std::abs(s5 - s1) > Real(1e-8)) {
    points.push_back({(s5 * q0.x - s1 * q1.x) / (s5 - s1), (s5 * q0.y - s1 * q1.y) / (s5 - s1)});
  } else {
    const Real a0 = p0.y - p1.y, b0 = p1.x - p0.x, c0 = p0.x * p1.y - p1.x * p0.y;
    const Real a1 = q0.y - q1.y, b1 = q1.x - q0.x, c1 = q0.x * q1.y - q1.x * q0.y;
    const Real determinant = a0 * b1 - a1 * b0;
    points.push_back({(b0 * c1 - b1 * c0) / determinant, (a1 * c0 - a0 * c1) / determinant});
  }
}

template <class Real>
Real overlap_bev(const Bev<Real>& a, const Bev<Real>& b) {
  std::vector<Point<Real>> points;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      add_crossing(a.corner[i], a.corner[(i + 1) % 4], b.corner[j], b.corner[(j + 1) % 4], points);
  for (int k = 0; k < 4; ++k) {
    if (a.has(b.corner[k])) points.push_back(b.corner[k]);
    if (b.has(a.corner[k])) points.push_back(a.corner[k]);
  }
  if (points.empty()) return 0;
  const auto count = static_cast<Real>(points.size());
  Point<Real> centre{0, 0};
  for (const Point<Real>& p : points) centre = {centre.x + p.x, centre.y + p.y};
  centre = {centre.x / count, centre.y / count};
  const auto angle = [&](Point<Real> p) {
    return static_cast<Real>(std::atan2(double{p.y - centre.y}, double{p.x - centre.x}));
  };
  for (std::size_t j = 0; j + 1 < points.size(); ++j)
    for (std::size_t i = 0; i + j + 1 < points.size(); ++i)
      if (angle(points[i]) > angle(points[i + 1])) std::swap(points[i], points[i + 1]);
  Real area = 0;
  for (std::size_t k = 0; k + 1 < points.size(); ++k)
    area += cross(points[k] - points[0], points[k + 1] - points[0]);
  return std::abs(area) / 2;
}

template <class Real>
Real boxes_overlap_bev(const Real* a, const Real* b) {
  return overlap_bev(Bev<Real>(a), Bev<Real>(b));
}
template <class Real>
Real boxes_iou_bev(const Real* a, const Real* b) {
  const Real overlap = boxes_overlap_bev(a, b);
  return overlap / std::fmax(a[3] * a[4] + b[3] * b[4] - overlap, Real(1e-8));
}
template <class Real>
Real boxes_iou3d(const Real* a, const Real* b) {
  const Real tops[] = {a[2] + a[5] / 2, b[2] + b[5] / 2}, bottoms[] = {a[2] - a[5] / 2, b[2] - b[5] / 2};
  Real height = std::min(tops[0], tops[1]) - std::max(bottoms[0], bottoms[1]);
  for (int k = 0; k < 2; ++k)
    if (std::isnan(tops[k]) || std::isnan(bottoms[k])) height = 0;
  const Real overlap = boxes_overlap_bev(a, b);
  const Real shared = overlap == 0 ? overlap : overlap * (height > 0 ? height : 0);  // not 0 * inf
  const Real volumes = a[3] * a[4] * a[5] + b[3] * b[4] * b[5];
  return shared / std::fmax(volumes - shared, Real(1e-6));
}

// -- overlap of boxes of 5 numbers -------------------------------------------------------------------------

// The corners of a box whose centre is given.
template <class Real>
void corners_of(const Real* box, Point<Real> centre, Point<Real>* corner) {
  const Real c = static_cast<Real>(std::cos(double{box[4]})) * Real(0.5);
  const Real s = static_cast<Real>(std::sin(double{box[4]})) * Real(0.5);
  const Real w = box[2], h = box[3];
  corner[0] = {centre.x - s * h - c * w, centre.y + c * h - s * w};
  corner[1] = {centre.x + s * h - c * w, centre.y - c * h - s * w};
  for (int k = 0; k < 2; ++k) corner[k + 2] = {2 * centre.x - corner[k].x, 2 * centre.y - corner[k].y};
}

template <class Real>
Real dot(Point<Real> a, Point<Real> b) {
  return a.x * b.x + a.y * b.y;
}

// Whether p is in the box with these corners, borders included.
template <class Real>
bool is_in_corners(Point<Real> p, const Point<Real>* corner) {
  const Point<Real> ab = corner[1] - corner[0], da = corner[0] - corner[3], ap = p - corner[0];
  const Real along = dot(ap, ab), across = -dot(ap, da);
  return along >= 0 && along <= dot(ab, ab) && across >= 0 && across <= dot(da, da);
}

// The area of the convex hull, by Graham's scan.
template <class Real>
Real hull_area(const std::vector<Point<Real>>& points) {
  std::size_t first = 0;
  for (std::size_t i = 1; i < points.size(); ++i)
    if (points[i].y < points[first].y || (points[i].y == points[first].y && points[i].x < points[first].x))
      first = i;
  std::vector<std::pair<Point<Real>, Real>> q;  // with the square of the distance from the first point
  for (const Point<Real>& p : points) {
    const Point<Real> from_first = p - points[first];
    q.push_back({from_first, dot(from_first, from_first)});
  }
  std::swap(q[0], q[first]);
  for (std::size_t i = 1; i + 1 < q.size(); ++i)
    for (std::size_t j = i + 1; j < q.size(); ++j) {
      const double turn = cross(q[i].first, q[j].first);
      if (turn < -1e-6 || (std::abs(turn) < 1e-6 && q[i].second > q[j].second)) std::swap(q[i], q[j]);
    }
  std::size_t k = 1;
  while (k < q.size() && !(double{q[k].second} > 1e-8)) ++k;
  if (k == q.size()) return 0;
  std::vector<Point<Real>> hull{q[0].first, q[k].first};
  for (++k; k < q.size(); ++k) {
    const auto is_left = [&] {
      const Point<Real> before = hull[hull.size() - 2];
      return !(cross(q[k].first - before, hull.back() - before) >= 0);
    };
    while (hull.size() > 1 && !is_left()) hull.pop_back();
    hull.push_back(q[k].first);
  }
  if (hull.size() < 3) return 0;
  Real area = 0;
  for (std::size_t i = 1; i + 1 < hull.size(); ++i)
    area += std::abs(cross(hull[i] - hull[0], hull[i + 1] - hull[0]));
  return area / 2;
}

template <class Real>
Real box_iou_rotated(const Real* a, const Real* b, IouMode mode) {
  const Real area_a = a[2] * a[3], area_b = b[2] * b[3];
  if (double{area_a} < 1e-14 || double{area_b} < 1e-14) return 0;
  const double shift[] = {double{a[0] + b[0]} / 2, double{a[1] + b[1]} / 2};
  const auto shifted = [&](const Real* box) {
    return Point<Real>{static_cast<Real>(double{box[0]} - shift[0]),
                       static_cast<Real>(double{box[1]} - shift[1])};
  };
  Point<Real> p[4], q[4];
  corners_of(a, shifted(a), p);
  corners_of(b, shifted(b), q);
  std::vector<Point<Real>> points;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const Point<Real> edge_a = p[(i + 1) % 4] - p[i], edge_b = q[(j + 1) % 4] - q[j], d = q[j] - p[i];
      const Real determinant = cross(edge_b, edge_a);
      if (std::abs(double{determinant}) <= 1e-14) continue;
      const Real t1 = cross(edge_b, d) / determinant, t2 = cross(edge_a, d) / determinant;
      if (t1 >= 0 && t1 <= 1 && t2 >= 0 && t2 <= 1)
        points.push_back({p[i].x + edge_a.x * t1, p[i].y + edge_a.y * t1});
    }
  for (const Point<Real>& corner : p)
    if (is_in_corners(corner, q)) points.push_back(corner);
  for (const Point<Real>& corner : q)
    if (is_in_corners(corner, p)) points.push_back(corner);
  const Real inter = points.size() <= 2 ? Real(0) : hull_area(points);
  return mode == IouMode::iou ? inter / (area_a + area_b - inter) : inter / area_a;
}

// -- non-maximum suppression -------------------------------------------------------------------------------

// Boxes of 7 numbers without their headings.
template <class Real>
Real iou_normal(const Real* a, const Real* b) {
  const Real a_edges[] = {a[0] - a[3] / 2, a[0] + a[3] / 2, a[1] - a[4] / 2, a[1] + a[4] / 2};
  const Real b_edges[] = {b[0] - b[3] / 2, b[0] + b[3] / 2, b[1] - b[4] / 2, b[1] + b[4] / 2};
  for (int k = 0; k < 4; ++k)
    if (std::isnan(a_edges[k]) || std::isnan(b_edges[k])) return 0;
  const Real width = std::min(a_edges[1], b_edges[1]) - std::max(a_edges[0], b_edges[0]);
  const Real height = std::min(a_edges[3], b_edges[3]) - std::max(a_edges[2], b_edges[2]);
  const Real inter = (width > 0 ? width : Real(0)) * (height > 0 ? height : Real(0));
  return inter / std::fmax(a[3] * a[4] + b[3] * b[4] - inter, Real(1e-8));
}

// Boxes of x1, y1, x2, y2.
template <class Real>
Real iou_upright(const Real* a, const Real* b, Real offset) {
  const Real width = std::min(a[2], b[2]) - std::max(a[0], b[0]) + offset;
  const Real height = std::min(a[3], b[3]) - std::max(a[1], b[1]) + offset;
  const Real inter = (width > 0 ? width : Real(0)) * (height > 0 ? height : Real(0));
  const Real area_a = (a[2] - a[0] + offset) * (a[3] - a[1] + offset);
  const Real area_b = (b[2] - b[0] + offset) * (b[3] - b[1] + offset);
  return inter / (area_a + area_b - inter);
}

// The order of visits: descending, NaN first, equal ones as they are.
inline std::vector<std::int64_t> descending(const std::vector<double>& scores) {
  std::vector<std::int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto is_before = [&](std::int64_t i, std::int64_t j) {
    const double a = scores[static_cast<std::size_t>(i)], b = scores[static_cast<std::size_t>(j)];
    return std::isnan(a) ? !std::isnan(b) : a > b;
  };
  std::stable_sort(order.begin(), order.end(), is_before);
  return order;
}

// iou(j, i) is that of two boxes. Keeps `most` boxes at most.
template <class Iou>
std::vector<std::int64_t> suppressed(const std::vector<std::int64_t>& order, std::int64_t most,
                                     float threshold, const Iou& iou) {
  std::vector<std::int64_t> kept;
  for (const std::int64_t i : order) {
    if (static_cast<std::int64_t>(kept.size()) == most) break;
    const bool is_suppressed =
        std::any_of(kept.begin(), kept.end(), [&](std::int64_t j) { return iou(j, i) > threshold; });
    if (!is_suppressed) kept.push_back(i);
  }
  return kept;
}

// -- points in boxes ---------------------------------------------------------------------------------------

template <class Real>
bool is_in_box(const Real* point, const Real* box, BoxZ z, float margin) {
  for (int k = 0; k < 7; ++k)
    if (std::isnan(box[k])) return false;
  const double half_height = double{box[5]} / 2;
  const Real middle = z == BoxZ::center ? box[2] : static_cast<Real>(double{box[2]} + half_height);
  if (!(double{std::abs(point[2] - middle)} <= half_height)) return false;
  const Real cosine = static_cast<Real>(std::cos(-double{box[6]}));
  const Real sine = static_cast<Real>(std::sin(-double{box[6]}));
  const Real sx = point[0] - box[0], sy = point[1] - box[1];
  const Real lx = sx * cosine + sy * -sine, ly = sx * sine + sy * cosine;
  return double{std::abs(lx)} < double{box[3]} / 2 + double{margin} &&
         double{std::abs(ly)} < double{box[4]} / 2 + double{margin};
}

}  // namespace turnout::reference
