#include "src/base/svg.h"

#include "src/base/format.h"

namespace axccl {

std::string EscapeXml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t' ? '?' : c;
    }
  }
  return escaped;
}

std::string BeginSvg(double width, double height, std::string_view style, std::string_view more) {
  return Format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\"",
                width, height, width, height) +
         std::string(more) + ">\n<style>" + std::string(style) + "</style>\n";
}

void SvgWriter::Words(double x, double y, std::string_view words, const char* anchor) {
  text_ += Format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor) + EscapeXml(words) + "</text>\n";
}

void SvgWriter::Rect(std::string_view style, double x, double y, double width, double height, std::string_view title,
                     std::string_view more) {
  text_ += "<rect class=\"" + std::string(style) +
           Format("\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\"", x, y, width, height) + std::string(more);
  text_ += title.empty() ? "/>\n" : "><title>" + EscapeXml(title) + "</title></rect>\n";
}

void SvgWriter::Line(std::string_view style, double x1, double y1, double x2, double y2) {
  text_ += "<line class=\"" + std::string(style) +
           Format("\" x1=\"%.2f\" x2=\"%.2f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", x1, x2, y1, y2);
}

}  // namespace axccl
