#include "src/topo/text.h"

#include <limits>

#include "src/base/text_reader.h"

namespace axccl::topo {
namespace {

constexpr uint64_t kAny = std::numeric_limits<uint64_t>::max();

std::string Field(const char* key, uint64_t value) { return std::string(" ") + key + " " + std::to_string(value); }
std::string KnownField(const char* key, uint64_t value) { return value == 0 ? "" : Field(key, value); }
std::string NodeField(int node) { return node == kNowhere ? "" : Field("node", static_cast<uint64_t>(node)); }

std::string PrintGroup(const Group& group) {
  std::string text = "l3 " + std::to_string(group.l3) + NodeField(group.node) + "\n";
  for (const Core& core : group.cores) {
    text += "core" + KnownField("l1", core.l1) + KnownField("l2", core.l2) + " processors";
    for (const int processor : core.processors) text += " " + std::to_string(processor);
    text += "\n";
  }
  return text;
}

// " key number", which may be left out.
template <class T>
bool ReadKnown(TextReader* in, const char* key, uint64_t least, uint64_t most, T* value) {
  return !in->Try(std::string(" ") + key + " ") || in->Number(least, most, value);
}

bool ReadCore(TextReader* in, Core* core) {
  if (!ReadKnown(in, "l1", 1, kAny, &core->l1) || !ReadKnown(in, "l2", 1, kAny, &core->l2)) return false;
  if (!in->Expect(" processors")) return false;
  do {
    int processor = 0;
    if (!in->Expect(" ") || !in->Number(0, kMaxNumber, &processor)) return false;
    core->processors.push_back(processor);
  } while (!in->Try("\n"));
  return true;
}

bool ReadGroup(TextReader* in, Group* group) {
  if (!in->Number(0, kAny, &group->l3) || !in->Expect(" node ")) return false;
  if (!in->Number(0, kMaxNumber, &group->node) || !in->Expect("\n")) return false;
  while (in->Try("core")) {
    if (!ReadCore(in, &group->cores.emplace_back())) return false;
  }
  return !group->cores.empty() || in->Fail("expected 'core'");
}

bool ReadPackage(TextReader* in, Package* package) {
  while (in->Try("l3 ")) {
    if (!ReadGroup(in, &package->groups.emplace_back())) return false;
  }
  return !package->groups.empty() || in->Fail("expected 'l3 '");
}

bool ReadNic(TextReader* in, Nic* nic) {
  nic->name = in->Word();
  if (!in->Expect(" kind ")) return false;
  const size_t mark = in->Mark();
  if (!FindNicKind(in->Word(), &nic->kind)) {
    in->Back(mark);
    return in->Fail("expected ethernet, infiniband, virtual or other");
  }
  return ReadKnown(in, "speed", 1, kAny, &nic->megabits) && ReadKnown(in, "node", 0, kMaxNumber, &nic->node) &&
         in->Expect("\n");
}

bool ReadGpu(TextReader* in, Gpu* gpu) {
  gpu->address = in->Word();
  return ReadKnown(in, "speed", 1, kAny, &gpu->megabits) && ReadKnown(in, "node", 0, kMaxNumber, &gpu->node) &&
         in->Expect("\n");
}

bool ReadMachine(TextReader* in, Machine* machine) {
  uint64_t version = 0;
  if (!in->Expect("axccl-topology ") || !in->Number(kTextVersion, kTextVersion, &version) || !in->Expect("\n"))
    return false;
  if (in->Try("processor ")) {
    machine->processor = in->Line();
    if (machine->processor.empty()) return in->Fail("expected the model of the processor");
    if (!in->Expect("\n")) return false;
  }
  while (in->Try("node ")) {
    Node& node = machine->nodes.emplace_back();
    if (!in->Number(0, kMaxNumber, &node.id) || !in->Expect(" bytes ")) return false;
    if (!in->Number(0, kAny, &node.bytes) || !in->Expect("\n")) return false;
  }
  while (in->Try("package\n")) {
    if (!ReadPackage(in, &machine->packages.emplace_back())) return false;
  }
  if (machine->packages.empty())
    return in->Fail(machine->nodes.empty() ? "expected 'node '" : "expected 'node ' or 'package'");
  while (in->Try("nic ")) {
    if (!ReadNic(in, &machine->nics.emplace_back())) return false;
  }
  while (in->Try("gpu ")) {
    if (!ReadGpu(in, &machine->gpus.emplace_back())) return false;
  }
  return in->AtEnd() || in->Fail("expected the next line of an axccl-topology");
}

}  // namespace

std::string Print(const Machine& machine) {
  std::string text = "axccl-topology " + std::to_string(kTextVersion) + "\n";
  if (!machine.processor.empty()) text += "processor " + machine.processor + "\n";
  for (const Node& node : machine.nodes) text += "node " + std::to_string(node.id) + Field("bytes", node.bytes) + "\n";
  for (const Package& package : machine.packages) {
    text += "package\n";
    for (const Group& group : package.groups) text += PrintGroup(group);
  }
  for (const Nic& nic : machine.nics)
    text +=
        "nic " + nic.name + " kind " + Name(nic.kind) + KnownField("speed", nic.megabits) + NodeField(nic.node) + "\n";
  for (const Gpu& gpu : machine.gpus)
    text += "gpu " + gpu.address + KnownField("speed", gpu.megabits) + NodeField(gpu.node) + "\n";
  return text;
}

Result<Machine> Parse(std::string_view text) {
  TextReader in("topology text", text);
  Machine machine;
  if (!ReadMachine(&in, &machine)) return in.status();
  AXCCL_RETURN_IF_ERROR(Check(machine));
  return machine;
}

}  // namespace axccl::topo
