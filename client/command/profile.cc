// SPDX-License-Identifier: Apache-2.0
#include "client/render/profile.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/command/command.h"
#include "client/file.h"
#include "client/local_service.h"
#include "client/profile_diff.h"
#include "client/render/text.h"
#include "client/render/units.h"
#include "server/base/status_macros.h"
#include "server/profile/import.h"
#include "server/profile/profile_file.h"

namespace fabricwise {
namespace {

struct ReadFlags {
  ServiceAddress address;
  Format format = Format::kTable;
  std::string out = "-";
};

absl::Status RunShow(const ReadFlags& flags, const Session& session) {
  ASSIGN_OR_RETURN(std::unique_ptr<Service> service,
                   session.environment.connect(flags.address));
  ASSIGN_OR_RETURN(v1::NodeProfile profile,
                   service->GetProfile(v1::PROFILE_VIEW_CURVES));
  if (flags.format == Format::kJson) return WriteJson(profile, session.out());
  RenderOptions options = session.render_options();
  session.out() << RenderProfile(options.style, profile, options.now);
  return absl::OkStatus();
}

absl::Status Write(const std::string& path, absl::string_view content,
                   const Session& session) {
  if (path != "-") return WriteFile(path, content);
  session.out() << content;
  return absl::OkStatus();
}

absl::Status RunExport(const ReadFlags& flags, const Session& session) {
  ASSIGN_OR_RETURN(std::unique_ptr<Service> service,
                   session.environment.connect(flags.address));
  ASSIGN_OR_RETURN(v1::NodeProfile profile,
                   service->GetProfile(v1::PROFILE_VIEW_FILE));
  return Write(flags.out, profile.profile_file(), session);
}

struct ImportFlags {
  ServiceAddress address;
  std::vector<std::string> files;
  std::string out;
  ImportOptions options;
  std::string gpu_name, op, time;
  std::optional<int64_t> gpus, compute_capability, nvlinks, int4_group;
  std::optional<double> gpu_memory_gb;
  int origin = -1, peer_access = -1;  // -1: not said
  bool allow_other_node = false;
};

absl::Status CheckFlag(absl::string_view name, std::optional<int64_t> value,
                       int64_t low, int64_t high) {
  if (!value || (*value >= low && *value <= high)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", *value, "; allowed: ", low, " to ", high));
}

// What the flags say of the GPUs; none: what the files say.
absl::StatusOr<std::vector<Gpu>> GpusOf(const ImportFlags& flags) {
  if (!flags.gpus) {
    if (flags.gpu_name.empty() && !flags.gpu_memory_gb &&
        !flags.compute_capability && !flags.nvlinks && flags.peer_access < 0) {
      return std::vector<Gpu>();
    }
    return absl::InvalidArgumentError(
        "--gpus is required with --gpu-name, --gpu-memory-gb, "
        "--compute-capability, --peer-access and --nvlinks");
  }
  constexpr int64_t kMostGpus = 1024;
  RETURN_IF_ERROR(CheckFlag("--gpus", flags.gpus, 1, kMostGpus));
  // Two digits at the least, and room for a generation with two of its own.
  constexpr int64_t kLeastCapability = 10, kMostCapability = 999;
  RETURN_IF_ERROR(CheckFlag("--compute-capability", flags.compute_capability,
                            kLeastCapability, kMostCapability));
  Gpu gpu;
  gpu.name = flags.gpu_name;
  gpu.compute_capability =
      static_cast<int>(flags.compute_capability.value_or(0));
  if (flags.gpu_memory_gb) {
    constexpr double kMostGigabytes = 1e5;
    constexpr double kGigabyte = 1e9;
    if (!(*flags.gpu_memory_gb > 0 && *flags.gpu_memory_gb < kMostGigabytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--gpu-memory-gb is ", *flags.gpu_memory_gb,
                       "; allowed: over 0 and under ", kMostGigabytes));
    }
    gpu.memory_bytes = std::llround(*flags.gpu_memory_gb * kGigabyte);
  }
  return std::vector<Gpu>(static_cast<size_t>(*flags.gpus), gpu);
}

// What the flags say of the ways between the GPUs, the same for each pair.
absl::Status SetWays(const ImportFlags& flags, Fingerprint* node) {
  const size_t count = node->gpus.size();
  if (flags.peer_access >= 0) {
    node->peer_access.assign(count,
                             std::vector<bool>(count, flags.peer_access != 0));
    for (size_t i = 0; i < count; ++i) node->peer_access[i][i] = true;
  }
  constexpr int64_t kMostNvlinks = 64;  // of one GPU there are 18 today
  RETURN_IF_ERROR(CheckFlag("--nvlinks", flags.nvlinks, 0, kMostNvlinks));
  if (flags.nvlinks) {
    node->nvlinks.assign(
        count, std::vector<int>(count, static_cast<int>(*flags.nvlinks)));
    for (size_t i = 0; i < count; ++i) node->nvlinks[i][i] = 0;
  }
  return absl::OkStatus();
}

absl::StatusOr<ImportOptions> OptionsOf(const ImportFlags& flags) {
  ImportOptions options = flags.options;
  ASSIGN_OR_RETURN(options.fingerprint.gpus, GpusOf(flags));
  RETURN_IF_ERROR(SetWays(flags, &options.fingerprint));
  std::sort(options.fingerprint.nccl_environment.begin(),
            options.fingerprint.nccl_environment.end());
  for (const std::string& variable : options.fingerprint.nccl_environment) {
    if (absl::StartsWith(variable, "NCCL_") &&
        absl::StrContains(variable, "=")) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "--nccl-env is \"", variable, "\"; allowed: NCCL_NAME=value"));
  }
  if (flags.origin >= 0) options.origin = static_cast<Origin>(flags.origin);
  if (!flags.op.empty()) {
    absl::StatusOr<CollectiveOp> op = ParseCollectiveOp(flags.op);
    if (!op.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--op: ", op.status().message()));
    }
    options.op = *op;
  }
  if (flags.int4_group) options.int4_group_size = *flags.int4_group;
  std::string error;
  if (!flags.time.empty() &&
      !absl::ParseTime(absl::RFC3339_full, flags.time, &options.time, &error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--time is \"", flags.time, "\"; allowed: as 2026-11-29T12:00:00Z"));
  }
  return options;
}

// Whether nothing is said of a profile to be made, so that a file which is one
// already is meant as it is.
bool SaysNothing(const ImportFlags& flags) {
  const Fingerprint& node = flags.options.fingerprint;
  return flags.options.name.empty() && flags.options.notes.empty() &&
         node.fabric.empty() && node.nccl_environment.empty() &&
         flags.gpu_name.empty() && !flags.gpus && !flags.gpu_memory_gb &&
         flags.origin < 0;
}

bool LooksLikeProfile(const std::string& content) {
  constexpr size_t kHeadBytes = 256;  // the format is named first
  return absl::StrContains(absl::string_view(content).substr(0, kHeadBytes),
                           kProfileFormat);
}

absl::StatusOr<ProfileData> MakeProfile(const ImportFlags& flags) {
  ASSIGN_OR_RETURN(ImportOptions options, OptionsOf(flags));
  std::vector<ImportFile> files;
  for (const std::string& path : flags.files) {
    ASSIGN_OR_RETURN(std::string content,
                     ReadFile(path, static_cast<int64_t>(kMaxImportBytes)));
    files.push_back({path, std::move(content)});
  }
  if (files.size() == 1 && SaysNothing(flags) &&
      LooksLikeProfile(files[0].content)) {
    absl::StatusOr<ProfileData> data =
        ReadProfile(files[0].name, files[0].content);
    if (data.ok()) return data;
    // Also a file of a newer version is the asker's to replace.
    return absl::InvalidArgumentError(data.status().message());
  }
  if (options.name.empty()) {
    return absl::InvalidArgumentError(
        "--name is required, to call the new profile by");
  }
  absl::StatusOr<ProfileData> data = AssembleProfile(options, files);
  if (absl::StartsWith(data.status().message(), "gpus is ")) {
    return absl::Status(data.status().code(),
                        absl::StrCat("--", data.status().message()));
  }
  return data;
}

absl::Status RunImport(const ImportFlags& flags, const Session& session) {
  if (flags.out.empty() && flags.address.target.empty()) {
    return absl::InvalidArgumentError(
        "--out FILE or --target is required, to say where the profile goes");
  }
  ASSIGN_OR_RETURN(ProfileData data, MakeProfile(flags));
  std::string file = WriteProfile(data);
  // What is written must be readable: build it before anything is replaced.
  ASSIGN_OR_RETURN(std::shared_ptr<const Profile> profile,
                   Profile::Build(std::move(data)));
  if (!flags.out.empty()) {
    RETURN_IF_ERROR(Write(flags.out, file, session));
    if (flags.out == "-") return absl::OkStatus();
    const auto curves = static_cast<int64_t>(profile->curves().size() +
                                             profile->exchanges().size());
    session.out() << " " << flags.out << ": "
                  << FormatCount(std::ssize(profile->data().measurements))
                  << " measurements, " << FormatCount(curves)
                  << (curves == 1 ? " curve\n" : " curves\n");
    return absl::OkStatus();
  }
  v1::ImportProfileRequest request;
  request.set_profile_file(std::move(file));
  request.set_allow_other_node(flags.allow_other_node);
  ASSIGN_OR_RETURN(std::unique_ptr<Service> service,
                   session.environment.connect(flags.address));
  ASSIGN_OR_RETURN(v1::NodeProfile taken, service->ImportProfile(request));
  RenderOptions render = session.render_options();
  session.out() << RenderProfile(render.style, taken, render.now);
  return absl::OkStatus();
}

void AddImport(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "import",
      "Make a profile from nccl-tests output (text or JSON), CSV tables and "
      "profile files");
  auto flags = std::make_shared<ImportFlags>();
  command->add_option("files", flags->files, "What was measured")
      ->type_name("FILE...")
      ->required();
  command->add_option("--out", flags->out, "Where to write it; - for stdout")
      ->type_name("FILE");
  AddAddress(*command, &flags->address, Reach::kDaemon);
  command->add_flag("--allow-other-node", flags->allow_other_node,
                    "With --target: also for a daemon on another kind of node");
  command->add_option("--name", flags->options.name, "The profile's name")
      ->type_name("NAME");
  command
      ->add_option("--gpu-name", flags->gpu_name,
                   "As NVML says it, such as \"NVIDIA H200\"")
      ->type_name("NAME");
  AddNumber(*command, "--gpus", &flags->gpus, "GPUs of the node");
  AddNumber(*command, "--gpu-memory-gb", &flags->gpu_memory_gb,
            "Memory of each, in 1e9 bytes");
  AddNumber(*command, "--compute-capability", &flags->compute_capability,
            "Of each, as 90 for sm_90");
  AddChoice(*command, "--peer-access", &flags->peer_access,
            {{"all", 1}, {"none", 0}},
            "Whether the GPUs reach each other's memory (default: not known)");
  AddNumber(*command, "--nvlinks", &flags->nvlinks,
            "NVLinks from each GPU to each other (default: not known)");
  command
      ->add_option("--fabric", flags->options.fingerprint.fabric,
                   "A label for how the GPUs reach each other")
      ->type_name("LABEL");
  command
      ->add_option("--nccl-env", flags->options.fingerprint.nccl_environment,
                   "What NCCL ran with; may be given again")
      ->type_name("NAME=VALUE")
      ->expected(1)
      ->take_all();
  command
      ->add_option("--note", flags->options.notes,
                   "What to know of it; may be given again")
      ->type_name("TEXT")
      ->expected(1)
      ->take_all();
  AddChoice(*command, "--origin", &flags->origin,
            {{"measured", static_cast<int>(Origin::kMeasured)},
             {"reference", static_cast<int>(Origin::kReference)}},
            "Whether this node was measured, or another of its kind (default: "
            "as the files say)");
  command
      ->add_option("--system", flags->options.system,
                   "The rows to take of a table with a column `system`")
      ->type_name("NAME");
  command
      ->add_option("--op", flags->op,
                   "The operation of nccl-tests output that does not name it "
                   "(before 2.17)")
      ->type_name("OPERATION");
  AddNumber(*command, "--int4-group", &flags->int4_group,
            "Weights that share a scale in int4 tables, which do not say it");
  command
      ->add_option("--time", flags->time,
                   "When files that do not say it were measured")
      ->type_name("RFC3339");
  command->footer(
      "One profile file without any of these flags is taken as it is. The "
      "columns of CSV tables, and what an answer needs of them, are in "
      "docs/importing.md.\n\n"
      "Examples:\n"
      "  fabricwise profile import my-node.json --target 127.0.0.1:7410\n"
      "  fabricwise profile import nccl-tests/*.json gemm.csv experts.csv "
      "memory.csv "
      "--name my-node "
      "--gpu-name \"NVIDIA H200\" --gpus 2 --gpu-memory-gb 150 "
      "--peer-access all --nvlinks 18 --out my-node.json");
  command->callback([flags, &session] {
    session.action = [flags, &session] { return RunImport(*flags, session); };
  });
}

struct DiffFlags {
  std::string first, second;
};

absl::Status RunDiff(const DiffFlags& flags, const Session& session) {
  ASSIGN_OR_RETURN(std::shared_ptr<const Profile> first,
                   LoadProfile(flags.first));
  ASSIGN_OR_RETURN(std::shared_ptr<const Profile> second,
                   LoadProfile(flags.second));
  RenderOptions options = session.render_options();
  session.out() << RenderDiff(options.style, Diff(*first, *second),
                              options.now);
  return absl::OkStatus();
}

}  // namespace

void AddProfileCommand(CLI::App& app, Session& session) {
  CLI::App* command =
      app.add_subcommand("profile", "What a node measured of itself, whole");
  command->require_subcommand(1);

  CLI::App* show = command->add_subcommand("show", "What a profile holds");
  auto show_flags = std::make_shared<ReadFlags>();
  AddAddress(*show, &show_flags->address, Reach::kEither);
  AddFormat(*show, &show_flags->format, {Format::kTable, Format::kJson});
  show->callback([show_flags, &session] {
    session.action = [show_flags, &session] {
      return RunShow(*show_flags, session);
    };
  });

  CLI::App* write = command->add_subcommand(
      "export", "The profile as one file, to be kept or imported elsewhere");
  auto export_flags = std::make_shared<ReadFlags>();
  AddAddress(*write, &export_flags->address, Reach::kEither);
  write
      ->add_option("--out", export_flags->out,
                   "Where to write it (default: stdout)")
      ->type_name("FILE");
  write->callback([export_flags, &session] {
    session.action = [export_flags, &session] {
      return RunExport(*export_flags, session);
    };
  });

  AddImport(*command, session);

  CLI::App* diff = command->add_subcommand(
      "diff", "What changed from one profile to another, curve by curve");
  auto diff_flags = std::make_shared<DiffFlags>();
  diff->add_option("from", diff_flags->first, "The first profile")
      ->type_name("FILE|NAME")
      ->required();
  diff->add_option("to", diff_flags->second, "The second profile")
      ->type_name("FILE|NAME")
      ->required();
  diff->callback([diff_flags, &session] {
    session.action = [diff_flags, &session] {
      return RunDiff(*diff_flags, session);
    };
  });
}

}  // namespace fabricwise
