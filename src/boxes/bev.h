// The overlap of two boxes of 7 numbers in bird's-eye view, from what is computed once for each box.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

namespace turnout::families::boxes {

template <class Real>
struct BevBox {
  Real x, y, cosine, sine, limit_x, limit_y;  // limits: half extents with the margin of 1 cm
  Real corner_x[4], corner_y[4];
  Real area;
  Real bottom, top, volume;

  BevBox() = default;
  explicit BevBox(const Real* box)
      : x(box[0]),
        y(box[1]),
        cosine(static_cast<Real>(std::cos(double{box[6]}))),
        sine(static_cast<Real>(std::sin(double{box[6]}))),
        limit_x(box[3] / 2 + Real(0.01)),
        limit_y(box[4] / 2 + Real(0.01)),
        area(box[3] * box[4]),
        bottom(box[2] - box[5] / 2),
        top(box[2] + box[5] / 2),
        volume(area * box[5]) {
    // Not dx/2: the sum with x is rounded.
    const Real u[] = {x - box[3] / 2 - x, x + box[3] / 2 - x}, v[] = {y - box[4] / 2 - y, y + box[4] / 2 - y};
    for (int k = 0; k < 4; ++k) {
      const Real right = u[k == 1 || k == 2], up = v[k >= 2];
      corner_x[k] = right * cosine + up * -sine + x;
      corner_y[k] = right * sine + up * cosine + y;
    }
  }

  bool has(Real px, Real py) const {
    const Real rx = (px - x) * cosine + (py - y) * sine;
    const Real ry = (px - x) * -sine + (py - y) * cosine;
    return std::abs(rx) < limit_x && std::abs(ry) < limit_y;
  }
};

// The corners of the polygon that two boxes share, in the order in which they are found.
template <class Real>
struct SharedPoints {
  Real x[24], y[24];  // at most 16 crossings and 8 corners
  int count = 0;

  void add(Real px, Real py) {
    x[count] = px;
    y[count++] = py;
  }

  void add_crossing(Real p0x, Real p0y, Real p1x, Real p1y, Real q0x, Real q0y, Real q1x, Real q1y) {
    // fmin and fmax ignore NaN; comparisons of all pairs do the same, and take less time.
    const auto touch = [](Real p0, Real p1, Real q0, Real q1) {
      return (p0 <= q0 || p0 <= q1 || p1 <= q0 || p1 <= q1) && (q0 <= p0 || q0 <= p1 || q1 <= p0 || q1 <= p1);
    };
    if (!touch(p0x, p1x, q0x, q1x) || !touch(p0y, p1y, q0y, q1y)) return;
    const auto turn = [](Real px, Real py, Real qx, Real qy, Real ox, Real oy) {
      return (px - ox) * (qy - oy) - (qx - ox) * (py - oy);
    };
    const Real s1 = turn(q0x, q0y, p1x, p1y, p0x, p0y), s2 = turn(p1x, p1y, q1x, q1y, p0x, p0y);
    if (!(s1 * s2 > 0)) return;
    const Real s3 = turn(p0x, p0y, q1x, q1y, q0x, q0y), s4 = turn(q1x, q1y, p1x, p1y, q0x, q0y);
    if (!(s3 * s4 > 0)) return;
    const Real s5 = turn(q1x, q1y, p1x, p1y, p0x, p0y);
    if (std::abs(s5 - s1) > Real(1e-8)) {
      add((s5 * q0x - s1 * q1x) / (s5 - s1), (s5 * q0y - s1 * q1y) / (s5 - s1));
    } else {
      const Real a0 = p0y - p1y, b0 = p1x - p0x, c0 = p0x * p1y - p1x * p0y;
      const Real a1 = q0y - q1y, b1 = q1x - q0x, c1 = q0x * q1y - q1x * q0y;
      const Real determinant = a0 * b1 - a1 * b0;
      add((b0 * c1 - b1 * c0) / determinant, (a1 * c0 - a0 * c1) / determinant);
    }
  }

  // The area of the polygon, whose corners are the points by their angles around their middle, equal ones in
  // their order. The definition compares arc tangents in Real. Keys that grow with the angle take less time,
  // and give the same order if they differ by more than their errors and that of an arc tangent.
  Real area() const {
    Real key[24];
    const auto [middle_x, middle_y] = middle();
    for (int k = 0; k < count; ++k) {
      const Real right = x[k] - middle_x, up = y[k] - middle_y;
      const Real part = up / (std::abs(right) + std::abs(up));
      key[k] = right >= 0 ? part : (up > 0 ? Real(2) : Real(-2)) - part;
    }
    return area_by(key);
  }
  Real area_by(Real* key) const {
    int order[24];
    sort_by(key, order);
    bool is_clear = key[0] > -2;  // -2 may be the angle of (-1, 0) or of (-1, -0)
    for (int k = 1; k < count; ++k) is_clear &= key[k] - key[k - 1] > Real(4e-6);
    if (!is_clear) {
      const auto [middle_x, middle_y] = middle();
      bool is_ordered = true;
      for (int k = 0; k < count; ++k) {
        key[k] = static_cast<Real>(std::atan2(double{y[k] - middle_y}, double{x[k] - middle_x}));
        is_ordered &= !std::isnan(key[k]);
      }
      is_ordered ? sort_by(key, order) : bubble_sort_by(key, order);
    }
    const Real first_x = x[order[0]], first_y = y[order[0]];
    Real sum = 0, before_x = x[order[0]] - first_x, before_y = y[order[0]] - first_y;  // 0, or NaN
    for (int k = 1; k < count; ++k) {
      const Real next_x = x[order[k]] - first_x, next_y = y[order[k]] - first_y;
      sum += before_x * next_y - next_x * before_y;
      before_x = next_x;
      before_y = next_y;
    }
    return std::abs(sum) / 2;
  }

 private:
  std::pair<Real, Real> middle() const {
    Real sum_x = 0, sum_y = 0;
    for (int k = 0; k < count; ++k) {
      sum_x += x[k];
      sum_y += y[k];
    }
    return {sum_x / static_cast<Real>(count), sum_y / static_cast<Real>(count)};
  }
  // A stable insertion sort.
  void sort_by(Real* key, int* order) const {
    for (int k = 0; k < count; ++k) {
      const Real its_key = key[k];
      int to = k;
      for (; to > 0 && key[to - 1] > its_key; --to) {
        key[to] = key[to - 1];
        order[to] = order[to - 1];
      }
      key[to] = its_key;
      order[to] = k;
    }
  }
  // As in the definition, for keys of which some are NaN.
  void bubble_sort_by(Real* key, int* order) const {
    for (int k = 0; k < count; ++k) order[k] = k;
    for (int j = 0; j + 1 < count; ++j)
      for (int i = 0; i + j + 1 < count; ++i)
        if (key[i] > key[i + 1]) {
          std::swap(key[i], key[i + 1]);
          std::swap(order[i], order[i + 1]);
        }
  }
};

template <class Real>
Real overlap_of(const BevBox<Real>& a, const BevBox<Real>& b) {
  SharedPoints<Real> points;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const int k = (i + 1) % 4, l = (j + 1) % 4;
      points.add_crossing(a.corner_x[i], a.corner_y[i], a.corner_x[k], a.corner_y[k], b.corner_x[j],
                          b.corner_y[j], b.corner_x[l], b.corner_y[l]);
    }
  for (int k = 0; k < 4; ++k) {
    if (a.has(b.corner_x[k], b.corner_y[k])) points.add(b.corner_x[k], b.corner_y[k]);
    if (b.has(a.corner_x[k], a.corner_y[k])) points.add(a.corner_x[k], a.corner_y[k]);
  }
  return points.count == 0 ? Real(0) : points.area();
}

// `value`, or `least` if it is smaller or NaN.
template <class Real>
Real at_least(Real value, Real least) {
  return value > least ? value : least;
}

template <class Real>
Real iou_of(const BevBox<Real>& a, const BevBox<Real>& b, Real overlap) {
  return overlap / at_least(a.area + b.area - overlap, Real(1e-8));
}

template <class Real>
Real iou3d_of(const BevBox<Real>& a, const BevBox<Real>& b, Real overlap) {
  const Real height = (b.top < a.top ? b.top : a.top) - (b.bottom > a.bottom ? b.bottom : a.bottom);
  const bool is_nan = std::isnan(b.top) || std::isnan(b.bottom);  // NaN of a makes the height NaN
  const Real shared = overlap == 0 ? overlap : overlap * (height > 0 && !is_nan ? height : Real(0));
  return shared / at_least(a.volume + b.volume - shared, Real(1e-6));
}

}  // namespace turnout::families::boxes
