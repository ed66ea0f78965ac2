// A small writer of pictures in SVG: rectangles, lines and words, with correct escaping.
//
// Lengths are pixels. The picture loads nothing else. A title is shown while the pointer rests on its shape. Not
// thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace axccl {

// The text with the characters that XML reserves as entities, and with '?' for what XML does not allow.
std::string EscapeXml(std::string_view text);

// What begins a picture, up to and with its style sheet. `more`: attributes of the whole, with a space in front.
std::string BeginSvg(double width, double height, std::string_view style, std::string_view more = "");

class SvgWriter {
 public:
  static constexpr const char* kEnd = "</svg>\n";

  void Words(double x, double y, std::string_view words, const char* anchor = "start");
  // `style`: a class of the style sheet. `more`: attributes, with a space in front.
  void Rect(std::string_view style, double x, double y, double width, double height, std::string_view title = "",
            std::string_view more = "");
  void Line(std::string_view style, double x1, double y1, double x2, double y2);
  // Text that is SVG already.
  void Raw(std::string_view svg) { text_ += svg; }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace axccl
