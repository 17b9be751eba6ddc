# frozen_string_literal: true

Puppet::Type.type(:proscenium_hocon).provide(:ruby) do
  desc 'Edits the text of the file, and replaces the file at once.'

  confine feature: :hocon

  def value
    require 'hocon'
    setting = resource[:setting].split('.')
    found = Hocon.parse(text).dig(*setting)
    found.nil? ? :absent : found.to_s.to_sym
  end

  def value=(value)
    require 'hocon/parser/config_document_factory'
    document = Hocon::Parser::ConfigDocumentFactory.parse_string(text)
    changed = document.set_value(resource[:setting], value.to_s).render
    Puppet::Util.replace_file(resource[:path], 0o644) { |file| file.write(changed) }
  end

  private

  def text
    File.read(resource[:path], encoding: Encoding::UTF_8)
  end
end
