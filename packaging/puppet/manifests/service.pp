# @summary Enables and starts the service. A change of the configuration reloads it, which loses no request.
# @api private
class proscenium::service {
  if $proscenium::manage_service {
    service { $proscenium::service_name:
      ensure  => $proscenium::service_ensure,
      enable  => $proscenium::service_enable,
      restart => "systemctl reload ${proscenium::service_name}",
    }
  }
}
