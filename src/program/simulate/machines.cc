#include "src/program/simulate/machines.h"

#include <algorithm>
#include <charconv>
#include <type_traits>
#include <variant>

#include "src/program/simulate/fabric_lines.h"

namespace axccl::program {
namespace {

constexpr std::string_view kFabricTitle = "axccl-fabric 1";

struct FabricFigure {
  std::string_view name;
  double least, most;
  std::variant<double Machines::*, double sim::Fabric::*, int Machines::*, uint64_t Machines::*> member;

  bool whole() const { return member.index() > 1; }
};

// From far below to far above what there is.
constexpr double kLeastRate = 1e3, kMostRate = 1e18, kMostSeconds = 10;
constexpr FabricFigure kFabricFigures[] = {
    {"ranks_per_machine", 1, 1 << 20, &Machines::ranks_per_machine},
    {"memory_bytes", 1, 1e15, &Machines::memory_bytes},
    {"launch_seconds", 0, kMostSeconds, &Machines::launch_seconds},
    {"f64_flops", kLeastRate, kMostRate, &Machines::f64_flops},
    {"f32_flops", kLeastRate, kMostRate, &Machines::f32_flops},
    {"f16_flops", kLeastRate, kMostRate, &Machines::f16_flops},
    {"integer_flops", kLeastRate, kMostRate, &Machines::integer_flops},
    {"element_flops", kLeastRate, kMostRate, &Machines::element_flops},
    {"memory_bytes_per_second", kLeastRate, kMostRate, &sim::Fabric::memory_bytes_per_second},
    {"link_bytes_per_second", kLeastRate, kMostRate, &sim::Fabric::link_bytes_per_second},
    {"nic_bytes_per_second", kLeastRate, kMostRate, &sim::Fabric::nic_bytes_per_second},
    {"op_seconds", 0, kMostSeconds, &sim::Fabric::op_seconds},
    {"signal_seconds", 0, kMostSeconds, &sim::Fabric::signal_seconds},
    {"message_seconds", 0, kMostSeconds, &sim::Fabric::message_seconds},
    {"network_seconds", 1e-12, kMostSeconds, &sim::Fabric::network_seconds},
};

// The figure's field, whichever type it has.
template <class Visit>
void VisitField(const FabricFigure& figure, Machines* machines, const Visit& visit) {
  std::visit(
      [&](auto member) {
        if constexpr (std::is_same_v<decltype(member), double sim::Fabric::*>) {
          visit(&(machines->fabric.*member));
        } else {
          visit(&(machines->*member));
        }
      },
      figure.member);
}

Status ReadFigure(const FabricFigure& figure, FabricLines* lines, Machines* machines) {
  const std::string_view line = lines->Next();
  const size_t blank = line.find(' ');
  if (line.substr(0, blank) != figure.name) return lines->Fail(0, line, "'" + std::string(figure.name) + "'");
  const std::string_view digits = blank == std::string_view::npos ? std::string_view() : line.substr(blank + 1);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  if (!is_number || !(value >= figure.least && value <= figure.most) ||
      (figure.whole() && value != static_cast<double>(static_cast<uint64_t>(value))))
    return lines->Fail(std::min(blank, line.size() - 1) + 1, digits,
                       std::string(figure.whole() ? "a whole number" : "a number") + " from " +
                           FigureText(figure.least) + " to " + FigureText(figure.most));
  VisitField(figure, machines, [&]<class T>(T* field) { *field = static_cast<T>(value); });
  return Status();
}

}  // namespace

Result<Machines> ParseMachines(std::string_view text) {
  Machines machines;
  FabricLines lines(text);
  const std::string_view title = lines.Next();
  if (title != kFabricTitle) return lines.Fail(0, title, "'" + std::string(kFabricTitle) + "'");
  for (const FabricFigure& figure : kFabricFigures) AXCCL_RETURN_IF_ERROR(ReadFigure(figure, &lines, &machines));
  AXCCL_RETURN_IF_ERROR(ParseMeasured(lines.Next(), &lines, &machines.measured));
  return machines;
}

std::string Print(const Machines& machines) {
  Machines shown = machines;
  std::string text = std::string(kFabricTitle) + "\n";
  for (const FabricFigure& figure : kFabricFigures) {
    text += std::string(figure.name) + " ";
    VisitField(figure, &shown, [&](const auto* field) { text += FigureText(*field); });
    text += "\n";
  }
  return text + Print(machines.measured);
}

}  // namespace axccl::program
