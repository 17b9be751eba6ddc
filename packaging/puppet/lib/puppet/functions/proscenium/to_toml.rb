# frozen_string_literal: true

# @summary Renders a hash as TOML.
#
# The order of the keys is kept, except that the values of a table come before its subtables, as TOML requires. An array
# of hashes becomes an array of tables; hashes in other arrays become inline tables.
Puppet::Functions.create_function(:'proscenium::to_toml') do
  # @param settings The tables and values.
  # @return [String] A TOML document.
  # @example
  #   proscenium::to_toml({ 'pools' => { 'ca' => { 'members' => ['ca.example.com:8140'] } } })
  dispatch :to_toml do
    param 'Hash[String, Data]', :settings
    return_type 'String'
  end

  def to_toml(settings)
    lines = table([], settings)
    lines.shift if lines.first == ''
    lines.map { |line| "#{line}\n" }.join
  end

  private

  # The lines of one table, without its header.
  def table(path, values)
    tables, plain = values.partition { |_, value| table?(value) || tables?(value) }
    lines = plain.map { |key, value| "#{key(key)} = #{value(path + [key], value)}" }
    tables.each do |key, value|
      name = path + [key]
      header = name.map { |part| key(part) }.join('.')
      if table?(value)
        # Without values of its own, a table that has subtables needs no header.
        lines.push('', "[#{header}]") unless only_tables?(value)
        lines.concat(table(name, value))
      else
        value.each { |element| lines.push('', "[[#{header}]]").concat(table(name, element)) }
      end
    end
    lines
  end

  def table?(value)
    value.is_a?(Hash)
  end

  def tables?(value)
    value.is_a?(Array) && !value.empty? && value.all?(Hash)
  end

  def only_tables?(value)
    !value.empty? && value.values.all? { |inner| table?(inner) || tables?(inner) }
  end

  def key(key)
    key.match?(/\A[A-Za-z0-9_-]+\z/) ? key : string([key], key)
  end

  def value(path, value)
    case value
    when String then string(path, value)
    when Integer, true, false then value.to_s
    when Float then float(path, value)
    when Array then "[#{value.map { |element| value(path, element) }.join(', ')}]"
    when Hash then inline_table(path, value)
    else refuse(path, "TOML has no value for #{value.nil? ? 'undef' : value.class}")
    end
  end

  def inline_table(path, values)
    return '{}' if values.empty?

    "{ #{values.map { |key, value| "#{key(key)} = #{value(path + [key], value)}" }.join(', ')} }"
  end

  def float(path, value)
    value.finite? ? value.to_s : refuse(path, "#{value} is not a finite number")
  end

  # A basic string: one line, in which quotes, backslashes and control characters are escaped.
  def string(path, text)
    text = text.encode(Encoding::UTF_8)
    refuse(path, 'a string is not valid UTF-8') unless text.valid_encoding?
    escaped = text.gsub(/["\\\u0000-\u001f\u007f]/) { |char| escape(char) }
    "\"#{escaped}\""
  rescue EncodingError
    refuse(path, 'a string is not valid UTF-8')
  end

  def escape(char)
    case char
    when '"', '\\' then "\\#{char}"
    when "\t" then '\t'
    when "\n" then '\n'
    when "\r" then '\r'
    else format('\u%04X', char.ord)
    end
  end

  def refuse(path, reason)
    raise ArgumentError, "proscenium::to_toml: #{path.join('.').inspect}: #{reason}"
  end
end
