// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/report/html_page.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::cli {

// A place in a drawing, in its units: x to the right, y down.
struct Point {
  double x = 0.0, y = 0.0;
};

// Maps values to coordinates: `low` to `begin` and `high` to `end`.
struct Scale {
  double low = 0.0, high = 1.0;
  double begin = 0.0, end = 1.0;
  bool is_log = false;  // then low is above 0

  double at(double value) const;
  // Returns the value of [low, high] that is nearest.
  double nearest(double value) const;
};

// Returns round values on the scale, at most about `most`: 1, 2 or 5 times powers of ten.
std::vector<double> ticks_of(const Scale& scale, int most);
// Returns the scale whose ends are round values around low and high.
Scale rounded(const Scale& scale, int most_ticks);
// Returns a tick's value with as many digits as the ticks need: "0.85", "1.00".
std::vector<std::string> tick_texts(const std::vector<double>& ticks);

// The width of the drawings of a page, in their units.
inline constexpr double kDrawingWidth = 1000.0;

// Adds a drawing of this size, which scales with the page. The description is for those who cannot
// see it.
Element add_drawing(Element parent, double width, double height, std::string_view description);

// Add marks of a class of the style sheet, and return them.
Element add_line(Element svg, Point from, Point to, std::string_view css);
Element add_box(Element svg, Point corner, double width, double height, std::string_view css);
Element add_label(Element svg, Point at, std::string_view text, std::string_view css = {});
Element add_circle(Element svg, Point center, double radius, std::string_view css);
Element add_diamond(Element svg, Point center, double radius, std::string_view css);
// Points to the right.
Element add_arrowhead(Element svg, Point center, double radius, std::string_view css);
Element add_polyline(Element svg, const std::vector<Point>& points, std::string_view css);

// The lines of a grid and the values beside them.
struct Axis {
  Scale scale;
  double begin = 0.0, end = 0.0;  // where the lines of the grid begin and end
  std::string_view label;         // with its unit
  int most_ticks = 8;
};
// Adds an axis with its values below the grid, whose lines go from y = begin down to y = end.
void add_x_axis(Element svg, const Axis& axis);
// Adds an axis with its values left of the grid, whose lines go from x = begin to x = end; the
// label stands above.
void add_y_axis(Element svg, const Axis& axis);

}  // namespace moejit::cli
