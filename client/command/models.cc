// SPDX-License-Identifier: Apache-2.0
#include "client/render/models.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/command/command.h"
#include "client/command/question.h"
#include "client/model.h"
#include "server/base/status_macros.h"
#include "server/profile/model_file.h"
#include "server/profile/preset.h"
#include "server/rpc/convert.h"

namespace fabricwise {
namespace {

struct Flags {
  std::string model, config;
  Format format = Format::kTable;
};

void AddList(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand("list", "Every model by name");
  auto format = std::make_shared<Format>(Format::kTable);
  AddFormat(*command, format.get(), {Format::kTable, Format::kJson});
  command->callback([format, &session] {
    session.action = [format, &session] {
      if (*format == Format::kJson) {
        v1::ListModelsResponse models;
        for (const ModelShape& shape : Presets()) {
          ToProto(shape, models.add_models());
        }
        return WriteJson(models, session.out());
      }
      session.out() << RenderModels(session.render_options().style, Presets());
      return absl::OkStatus();
    };
  });
}

void AddShow(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "show", "The shape of one model as JSON, as it was understood");
  auto flags = std::make_shared<Flags>();
  command
      ->add_option("preset", flags->model,
                   "Model by name or repository on Hugging Face")
      ->type_name("NAME");
  command
      ->add_option("--config", flags->config,
                   "Model by its Hugging Face config.json")
      ->type_name("FILE");
  command->callback([flags, &session] {
    session.action = [flags, &session]() -> absl::Status {
      ASSIGN_OR_RETURN(ModelShape shape,
                       FindShape(flags->model, flags->config));
      session.out() << PrintModelFile(shape);
      return absl::OkStatus();
    };
  });
}

}  // namespace

void AddModelsCommand(CLI::App& app, Session& session) {
  CLI::App* command =
      app.add_subcommand("models", "The model shapes that have a name");
  command->require_subcommand(1);
  AddList(*command, session);
  AddShow(*command, session);
}

}  // namespace fabricwise
